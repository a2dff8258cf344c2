#include "kernels/simd/portable.h"
#include "kernels/half_gemm/template.h"

namespace zeropoint {

void half_gemm_portable(const HalfGemmArgs& a, int64_t begin, int64_t end) { half_gemm_with<Portable>(a, begin, end); }

}  // namespace zeropoint
