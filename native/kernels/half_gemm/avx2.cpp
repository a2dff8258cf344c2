#include "kernels/simd/avx2.h"
#include "kernels/half_gemm/template.h"

namespace zeropoint {

void half_gemm_avx2(const HalfGemmArgs& a, int64_t begin, int64_t end) { half_gemm_with<Avx2>(a, begin, end); }

}  // namespace zeropoint
