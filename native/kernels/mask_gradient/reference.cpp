// The specification of mask_gradient, one element at a time. It is never optimized.
#include "kernels/mask_gradient/mask_gradient.h"

namespace zeropoint {

void mask_gradient_reference(const MaskGradientArgs& a, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) a.dx[i] = a.dy[i] * static_cast<float>(a.mask[i]);
}

}  // namespace zeropoint
