#include "kernels/narrow_gemm/narrow_gemm.h"

namespace zeropoint {

const GemmKernel& gemm_portable();

const GemmKernel& narrow_gemm_portable() { return gemm_portable(); }

}  // namespace zeropoint
