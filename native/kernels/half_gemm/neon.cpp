#include "kernels/simd/neon.h"
#include "kernels/half_gemm/template.h"

namespace zeropoint {

void half_gemm_neon(const HalfGemmArgs& a, int64_t begin, int64_t end) { half_gemm_with<Neon>(a, begin, end); }

}  // namespace zeropoint
