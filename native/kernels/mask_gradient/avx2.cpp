#include "kernels/mask_gradient/template.h"
#include "kernels/simd/avx2.h"

namespace zeropoint {

void mask_gradient_avx2(const MaskGradientArgs& a, int64_t begin, int64_t end) {
    mask_gradient_with<Avx2>(a, begin, end);
}

}  // namespace zeropoint
