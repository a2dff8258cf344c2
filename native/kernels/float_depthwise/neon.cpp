#include "kernels/simd/neon.h"
#include "kernels/float_depthwise/template.h"

namespace zeropoint {

void float_depthwise_neon(const FloatDepthwiseArgs& a, int64_t begin, int64_t end) {
    float_depthwise_with<Neon>(a, begin, end);
}

}  // namespace zeropoint
