#include "kernels/mask_gradient/template.h"
#include "kernels/simd/neon.h"

namespace zeropoint {

void mask_gradient_neon(const MaskGradientArgs& a, int64_t begin, int64_t end) {
    mask_gradient_with<Neon>(a, begin, end);
}

}  // namespace zeropoint
