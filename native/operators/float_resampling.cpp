#include "operators/float_resampling.h"

#include "cpu/machine.h"
#include "cpu/memory.h"
#include "cpu/threads.h"

#include <algorithm>

namespace zeropoint {
namespace {

constexpr int64_t kElements = worth_elements(4);  // worth a thread

// Between which two inputs an output lies, and what the second one counts.
struct Between {
    int64_t first, second;
    float share;

    Between(int64_t o, int64_t in, int64_t out, bool corners, double scale) {
        const double step = corners     ? (out > 1 ? static_cast<double>(in - 1) / static_cast<double>(out - 1) : 0.0)
                            : scale > 0 ? 1.0 / scale
                                        : static_cast<double>(in) / static_cast<double>(out);
        const double place =
            corners ? static_cast<double>(o) * step : std::max(0.0, (static_cast<double>(o) + 0.5) * step - 0.5);
        first = std::min(static_cast<int64_t>(std::min(place, static_cast<double>(in))), in - 1);
        second = std::min(first + 1, in - 1);
        share = std::clamp(static_cast<float>(place - static_cast<double>(first)), 0.0f, 1.0f);
    }
};

}  // namespace

void float_bilinear(const FloatPoolTensor& t, const FloatBilinearRule& rule) {
    const int64_t c = t.channels, lines = t.images * t.out[1], line = t.out[2] * c;
    if (lines * line == 0) return;
    prepare_output(t.y, static_cast<size_t>(lines * line) * sizeof(float));
    parallel_for(lines, std::max<int64_t>(1, kElements / line), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            const Between down(i % t.out[1], t.in[1], t.out[1], rule.align_corners, rule.scale_height);
            const float* image = t.x + i / t.out[1] * t.in[1] * t.in[2] * c;
            const float *above = image + down.first * t.in[2] * c, *below = image + down.second * t.in[2] * c;
            for (int64_t o = 0; o < t.out[2]; ++o) {
                const Between along(o, t.in[2], t.out[2], rule.align_corners, rule.scale_width);
                const float left = 1.0f - along.share, upper = 1.0f - down.share;
                const int64_t first = along.first * c, second = along.second * c;
                float* y = t.y + i * line + o * c;
                for (int64_t k = 0; k < c; ++k) {
                    const float high = above[first + k] * left + above[second + k] * along.share;
                    const float low = below[first + k] * left + below[second + k] * along.share;
                    y[k] = high * upper + low * down.share;
                }
            }
        }
    });
}

}  // namespace zeropoint
