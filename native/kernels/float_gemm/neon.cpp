#include "kernels/simd/neon.h"
#include "kernels/float_gemm/template.h"

namespace zeropoint {

void float_gemm_neon(const FloatGemmArgs& a, int64_t begin, int64_t end) { float_gemm_with<Neon>(a, begin, end); }

}  // namespace zeropoint
