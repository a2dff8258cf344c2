#include "kernels/simd/avx2.h"
#include "kernels/float_depthwise/template.h"

namespace zeropoint {

void float_depthwise_avx2(const FloatDepthwiseArgs& a, int64_t begin, int64_t end) {
    float_depthwise_with<Avx2>(a, begin, end);
}

}  // namespace zeropoint
