// The specification of fake_quantize, one element at a time. It is never optimized.
#include "kernels/fake_quantize/fake_quantize.h"
#include "kernels/grid_stretches.h"
#include "kernels/simd/fused.h"

#include <algorithm>
#include <cmath>

namespace zeropoint {
namespace {

constexpr float kInt64Limit = 9223372036854775808.0f;

float replace_beyond(float v, Beyond beyond, float low) {
    switch (beyond) {
        case Beyond::keep_nan: return v;
        case Beyond::nan_low: return std::isnan(v) ? low : v;
        case Beyond::int64_low: return v < kInt64Limit ? v : low;
    }
    return v;
}

}  // namespace

void fake_quantize_reference(const FakeQuantizeArgs& a, int64_t begin, int64_t end) {
    const auto one = [&](int64_t i, int64_t p) {
        const float zero_point = a.zero_point[p], scale = a.scale[p];
        const float raw = a.joined ? std::nearbyint(fused(a.x[i], a.inv[p], zero_point)) + 0.0f
                                   : std::nearbyint(a.x[i] * a.inv[p]) + zero_point;
        const float v = replace_beyond(raw, a.beyond, static_cast<float>(a.qmin));
        if (a.way_back == WayBack::single) {
            const float lo = static_cast<float>(a.qmin), hi = static_cast<float>(a.qmax);
            a.y[i] = ((v < lo ? lo : v > hi ? hi : v) - zero_point) * scale;
        } else {
            const double wide = v;
            const double q = wide < a.qmin ? a.qmin : wide > a.qmax ? a.qmax : wide;
            const double difference = q - a.exact_zero_point[p];
            a.y[i] = a.way_back == WayBack::exact ? static_cast<float>(difference) * scale
                                                  : static_cast<float>(difference * static_cast<double>(scale));
        }
        if (a.mask != nullptr) a.mask[i] = raw >= a.mask_lo && raw <= a.mask_hi;
    };
    for_each(a.grid, begin, end, one);
}

}  // namespace zeropoint
