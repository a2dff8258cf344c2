#include "kernels/narrow_gemm/narrow_gemm.h"

namespace zeropoint {

const GemmKernel& gemm_i8mm();

const GemmKernel& narrow_gemm_i8mm() { return gemm_i8mm(); }

}  // namespace zeropoint
