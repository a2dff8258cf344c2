#include "kernels/narrow_gemm/narrow_gemm.h"

namespace zeropoint {

const GemmKernel& gemm_neon();

const GemmKernel& narrow_gemm_neon() { return gemm_neon(); }

}  // namespace zeropoint
