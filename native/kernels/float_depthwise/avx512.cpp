#include "kernels/simd/avx512.h"
#include "kernels/float_depthwise/template.h"

namespace zeropoint {

void float_depthwise_avx512(const FloatDepthwiseArgs& a, int64_t begin, int64_t end) {
    float_depthwise_with<Avx512>(a, begin, end);
}

}  // namespace zeropoint
