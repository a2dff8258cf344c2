#include "kernels/narrow_gemm/narrow_gemm.h"

namespace zeropoint {

const GemmKernel& gemm_amx();

const GemmKernel& narrow_gemm_amx() { return gemm_amx(); }

}  // namespace zeropoint
