// The specification of float_depthwise, one element at a time. It is never optimized.
#include "kernels/float_depthwise/float_depthwise.h"
#include "kernels/simd/fused.h"

#include <cmath>

namespace zeropoint {

void float_depthwise_reference(const FloatDepthwiseArgs& a, int64_t begin, int64_t end) {
    for (int64_t output = begin; output < end; ++output)
        for (int64_t c = 0; c < a.channels; ++c) {
            float acc = a.bias != nullptr ? a.bias[c] : 0.0f;
            for (int64_t t = 0; t < a.taps; ++t)
                acc = fused(a.x[output * a.x_step + a.x_taps[t] + c], a.w[a.w_taps[t] + c], acc);
            a.y[output * a.y_step + c] = acc;
        }
}

}  // namespace zeropoint
