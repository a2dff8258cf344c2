#include "kernels/narrow_gemm/narrow_gemm.h"

namespace zeropoint {

const GemmKernel& gemm_dotprod();

const GemmKernel& narrow_gemm_dotprod() { return gemm_dotprod(); }

}  // namespace zeropoint
