#include "kernels/simd/avx512.h"
#include "kernels/half_gemm/template.h"

namespace zeropoint {

void half_gemm_avx512(const HalfGemmArgs& a, int64_t begin, int64_t end) { half_gemm_with<Avx512>(a, begin, end); }

}  // namespace zeropoint
