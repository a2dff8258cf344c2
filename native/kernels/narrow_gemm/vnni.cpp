#include "kernels/narrow_gemm/narrow_gemm.h"

namespace zeropoint {

const GemmKernel& gemm_vnni();

const GemmKernel& narrow_gemm_vnni() { return gemm_vnni(); }

}  // namespace zeropoint
