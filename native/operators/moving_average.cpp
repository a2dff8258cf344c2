#include "operators/moving_average.h"

#include "operators/affine.h"
#include "operators/qparams.h"
#include "operators/ranges.h"

#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

namespace zeropoint {
namespace {

float moved(float average, float now, float rate) {
    return std::isinf(average) ? now : average + rate * (now - average);
}

}  // namespace

void observe_range(const float* x, const Grid& grid, int64_t parts, float* min, float* max, bool average, float rate) {
    const size_t n = static_cast<size_t>(parts);
    std::vector<float> low(n), high(n);
    minmax(x, grid, parts, low.data(), high.data());
    for (size_t p = 0; p < n; ++p) {
        const bool empty = std::isinf(min[p]) && std::isinf(max[p]) && min[p] > max[p];
        if (empty) {
            min[p] = low[p];
            max[p] = high[p];
        } else if (average) {
            min[p] += rate * (low[p] - min[p]);
            max[p] += rate * (high[p] - max[p]);
        } else {
            if (std::isnan(low[p]) || low[p] < min[p]) min[p] = low[p];
            if (std::isnan(high[p]) || high[p] > max[p]) max[p] = high[p];
        }
    }
}

bool observe_and_fake_quantize(const float* x, const Grid& grid, bool per_channel, bool observe,
                               const MovingAverage& average, const FakeQuantization& fake) {
    const size_t parts = static_cast<size_t>(average.parts);
    bool observed = true;
    std::vector<float> low(average.min, average.min + parts), high(average.max, average.max + parts);
    if (observe && grid.numel() > 0) {
        std::vector<float> low_now(parts), high_now(parts);
        minmax(x, grid, average.parts, low_now.data(), high_now.data());
        for (size_t p = 0; p < parts; ++p) {
            if (!std::isfinite(low_now[p]) || !std::isfinite(high_now[p]))
                throw std::invalid_argument("the input must be finite to be observed, got a range of [" +
                                            std::to_string(low_now[p]) + ", " + std::to_string(high_now[p]) + "]" +
                                            (parts > 1 ? " in channel " + std::to_string(p) : "") +
                                            "; the running range is unchanged");
            low[p] = moved(low[p], low_now[p], average.rate);
            high[p] = moved(high[p], high_now[p], average.rate);
        }
    }
    if (fake.y != nullptr) {
        for (size_t p = 0; p < parts; ++p) {
            observed = observed && std::isfinite(low[p]) && std::isfinite(high[p]);
            const QParams q = qparams_of_range(low[p], high[p], fake.qmin, fake.qmax, fake.symmetric, true);
            average.scale[p] = static_cast<float>(q.scale);
            average.zero_point[p] = static_cast<int32_t>(q.zero_point);
        }
    }
    for (size_t p = 0; p < parts; ++p) {
        average.min[p] = low[p];
        average.max[p] = high[p];
    }
    if (fake.y != nullptr)
        fake_quantize(x, fake.y, fake.mask, grid, {average.scale, ScalarType::f32, average.parts},
                      {average.zero_point, ScalarType::s32, average.parts},
                      per_channel ? Beyond::int64_low : Beyond::nan_low,
                      per_channel ? WayBack::exact_product : WayBack::exact, static_cast<double>(fake.qmin),
                      static_cast<double>(fake.qmax));
    return observed;
}

}  // namespace zeropoint
