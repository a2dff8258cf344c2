// The specification of quantization_loss, one element at a time. It is never optimized.
#include "kernels/quantization_loss/quantization_loss.h"

#include <cmath>

namespace zeropoint {

void quantization_loss_reference(QuantizationLossArgs& a) {
    for (int k = 0; k < 2; ++k) {
        const LossCandidate& c = a.candidate[k];
        const auto squared_error = [&](float x) {
            const float v = std::nearbyint((x - c.low) * c.inv);
            const float q = v < 0.0f ? 0.0f : v > a.qmax ? a.qmax : v;  // keeps NaN
            const float error = x - (q * c.scale + c.low);
            return error * error;
        };
        float lanes[8] = {};
        const int64_t whole = a.n / 8 * 8;
        for (int64_t i = 0; i < whole; ++i) lanes[i % 8] += squared_error(a.x[i]);
        float loss = 0;
        for (float lane : lanes) loss += lane;
        for (int64_t i = whole; i < a.n; ++i) loss += squared_error(a.x[i]);
        a.loss[k] = loss;
    }
}

}  // namespace zeropoint
