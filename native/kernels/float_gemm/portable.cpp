#include "kernels/simd/portable.h"
#include "kernels/float_gemm/template.h"

namespace zeropoint {

void float_gemm_portable(const FloatGemmArgs& a, int64_t begin, int64_t end) {
    float_gemm_with<Portable>(a, begin, end);
}

}  // namespace zeropoint
