#include "kernels/mask_gradient/template.h"
#include "kernels/simd/avx512.h"

namespace zeropoint {

void mask_gradient_avx512(const MaskGradientArgs& a, int64_t begin, int64_t end) {
    mask_gradient_with<Avx512>(a, begin, end);
}

}  // namespace zeropoint
