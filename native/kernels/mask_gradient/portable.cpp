#include "kernels/mask_gradient/template.h"
#include "kernels/simd/portable.h"

namespace zeropoint {

void mask_gradient_portable(const MaskGradientArgs& a, int64_t begin, int64_t end) {
    mask_gradient_with<Portable>(a, begin, end);
}

}  // namespace zeropoint
