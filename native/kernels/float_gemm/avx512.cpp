#include "kernels/simd/avx512.h"
#include "kernels/float_gemm/template.h"

namespace zeropoint {

void float_gemm_avx512(const FloatGemmArgs& a, int64_t begin, int64_t end) { float_gemm_with<Avx512>(a, begin, end); }

}  // namespace zeropoint
