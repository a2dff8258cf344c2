#include "operators/qparams.h"

#include <algorithm>
#include <cmath>

namespace zeropoint {

QParams qparams_of_range(float low, float high, int64_t qmin, int64_t qmax, bool symmetric, bool rounded) {
    // Below this, PyTorch stretches the range: 1 / scale would leave float16.
    constexpr float kSmallScale = 6.1e-5f;
    const bool centered = symmetric && low < 0 && high > 0;
    if (centered) {
        const int64_t half = (qmax - qmin) / 2;
        const double scale =
            std::max(std::fabs(low / static_cast<float>(-(half + 1))), std::fabs(high / static_cast<float>(half)));
        low = static_cast<float>(scale * static_cast<double>(-(half + 1)));
        high = static_cast<float>(scale * static_cast<double>(half));
    }
    low = std::min(low, 0.0f);
    high = std::max(high, 0.0f);
    const double steps = static_cast<double>(qmax - qmin);
    double scale = (static_cast<double>(high) - static_cast<double>(low)) / steps;
    if (static_cast<float>(scale) == 0.0f || std::isinf(1.0f / static_cast<float>(scale))) scale = 0.1;
    if (rounded) scale = static_cast<double>(static_cast<float>(scale));
    if (scale < kSmallScale) {
        const float stretch = kSmallScale / static_cast<float>(scale);
        scale = kSmallScale;
        if (low == 0.0f) {
            high = static_cast<float>(kSmallScale * steps);
        } else if (high == 0.0f) {
            low = -static_cast<float>(kSmallScale * steps);
        } else {
            low *= stretch;
            high *= stretch;
        }
    }
    const double lowest = static_cast<double>(qmin), highest = static_cast<double>(qmax);
    const double from_low = lowest - low / scale, from_high = highest - high / scale;
    const double low_error = std::fabs(lowest) - std::fabs(low / scale);
    const double high_error = std::fabs(highest) - std::fabs(high / scale);
    double zero_point = low_error < high_error ? from_low : from_high;
    if (centered) zero_point = static_cast<double>(qmin + qmax) / 2;
    zero_point = std::nearbyint(std::min(std::max(zero_point, lowest), highest));
    return {scale, static_cast<int64_t>(zero_point)};
}

}  // namespace zeropoint
