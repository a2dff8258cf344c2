#include "kernels/simd/portable.h"
#include "kernels/float_depthwise/template.h"

namespace zeropoint {

void float_depthwise_portable(const FloatDepthwiseArgs& a, int64_t begin, int64_t end) {
    float_depthwise_with<Portable>(a, begin, end);
}

}  // namespace zeropoint
