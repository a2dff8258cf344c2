// The specification of float_softmax, one element at a time. It is never optimized.
#include "kernels/float_softmax/float_softmax.h"
#include "kernels/activations_reference.h"

#include <limits>

namespace zeropoint {

void float_softmax_reference(const FloatSoftmaxArgs& a, int64_t begin, int64_t end) {
    constexpr float kLeast = -std::numeric_limits<float>::infinity();
    for (int64_t row = begin; row < end; ++row) {
        const float* x = a.x + row * a.length;
        float* y = a.y + row * a.length;
        float largest = kLeast;
        bool nothing = true;
        for (int64_t i = 0; i < a.length; ++i) {
            largest = x[i] > largest ? x[i] : largest;
            nothing = nothing && x[i] == kLeast;
        }
        float lanes[FloatSoftmaxArgs::kLanes] = {};
        for (int64_t i = 0; i < a.length; ++i) {
            y[i] = OneActivation::exp(x[i] - largest);
            lanes[i % FloatSoftmaxArgs::kLanes] += y[i];
        }
        for (int half = FloatSoftmaxArgs::kLanes / 2; half > 0; half /= 2)
            for (int k = 0; k < half; ++k) lanes[k] += lanes[k + half];
        const float factor = 1.0f / lanes[0];
        for (int64_t i = 0; i < a.length; ++i) y[i] = a.safe && nothing ? 0.0f : y[i] * factor;
    }
}

}  // namespace zeropoint
