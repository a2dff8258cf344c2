#include "kernels/float_gemm/float_gemm.h"
#include "kernels/simd/avx512.h"
#include "kernels/half_gemm/template.h"

namespace zeropoint {

void float_gemm_avx512(const FloatGemmArgs& a, int64_t begin, int64_t end) { panel_gemm_with<Avx512>(a, begin, end); }

}  // namespace zeropoint
