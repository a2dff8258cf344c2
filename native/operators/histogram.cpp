#include "operators/histogram.h"

#include "cpu/threads.h"
#include "kernels/registry.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

namespace zeropoint {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

float cubed(float x) { return x * x * x; }

// PyTorch's floor division of float32, clamped to [0, last].
struct AnyLevels {
    static float floor_quotient(float a, float b, double last) {
        const double q = static_cast<double>(a) / static_cast<double>(b);
        if (std::isnan(q)) return std::numeric_limits<float>::quiet_NaN();
        if (q <= 0) return 0.0f;
        if (q >= last) return static_cast<float>(last);
        constexpr double kExact = 1 << 22;
        if (q < kExact) return static_cast<float>(static_cast<int64_t>(q));
        const float rest = std::fmod(a, b), whole = (a - rest) / b, floor = std::floor(whole);
        return whole - floor > 0.5f ? floor + 1 : floor;
    }
};

// The same where there are at most 2^22 levels, and a / b is no NaN: then the quotient's floor is exact in float64, and
// truncation is the floor of what is not negative. No branches, so that the compiler makes vectors of it.
struct FewLevels {
    static float floor_quotient(float a, float b, double last) {
        const double q = static_cast<double>(a) / static_cast<double>(b), positive = q > 0 ? q : 0;
        return static_cast<float>(static_cast<int32_t>(positive < last ? positive : last));
    }
};

template <class Levels>
void one_range_errors(const float* histogram, int64_t bins, float width, double step, double last, int64_t start,
                      float* errors) {
    const float step32 = static_cast<float>(step), half = static_cast<float>(step / 2);
    const float minus_half = static_cast<float>(-step / 2);
    const float whole = (cubed(half) - cubed(minus_half)) / 3;
    for (int64_t b = 0; b < bins; ++b) {
        const float begin = static_cast<float>(static_cast<int32_t>(b - start)) * width, end = begin + width;
        const float level_of_begin = Levels::floor_quotient(begin, step32, last);
        const float level_of_end = Levels::floor_quotient(end, step32, last);
        const float density = histogram[b] / width;
        // From the bin's begin to the border of its level, whole levels, and from the last border to its end.
        const float center_of_begin = (level_of_begin + 0.5f) * step32;
        const float center_of_end = level_of_end * step32 + half;
        float error = density * ((cubed(half) - cubed(begin - center_of_begin)) / 3);
        error += (level_of_end - level_of_begin - 1) * (density * whole);
        error += density * ((cubed(end - center_of_end) - cubed(minus_half)) / 3);
        errors[b] = error;
    }
}

HistogramPass count(const float* x, int64_t n, float from, float to, int64_t bins, float* counts) {
    const float shrink = std::isfinite((to - from) * static_cast<float>(bins)) ? 1.0f : 0x1p-32f;

    constexpr int64_t kGrain = 32768, kTasks = 16, kLongest = int64_t{1} << 30;
    const int64_t chunk = std::min(kLongest, std::max(kGrain, (n + kTasks - 1) / kTasks));
    const int64_t tasks = (n + chunk - 1) / chunk, room = HistogramArgs::kCopies * (bins + 1);
    std::vector<uint32_t> counters(static_cast<size_t>(tasks * room), 0);
    std::vector<HistogramPass> passes(static_cast<size_t>(tasks), HistogramPass{kInf, -kInf, 0, 0});
    const HistogramFn kernel = kernels().histogram;
    parallel_for(tasks, 1, [&](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; ++t) {
            HistogramPass& pass = passes[static_cast<size_t>(t)];
            kernel({x, from, to, shrink, bins, counters.data() + t * room, &pass.min, &pass.max, &pass.nans,
                    &pass.infinities},
                   t * chunk, std::min(n, (t + 1) * chunk));
        }
    });

    HistogramPass all{kInf, -kInf, 0, 0};
    for (const HistogramPass& pass : passes) {
        all.min = std::min(all.min, pass.min);
        all.max = std::max(all.max, pass.max);
        all.nans += pass.nans;
        all.infinities += pass.infinities;
    }
    all.min += 0.0f;  // -0 becomes +0, so that no instruction set or thread count shows
    all.max += 0.0f;
    for (int64_t b = 0; b < bins; ++b) {
        int64_t sum = 0;
        for (int64_t r = 0; r < tasks * HistogramArgs::kCopies; ++r)
            sum += counters[static_cast<size_t>(r * (bins + 1) + b)];
        counts[b] = static_cast<float>(sum);
    }
    return all;
}

}  // namespace

HistogramPass histogram(const float* x, int64_t n, float low, float high, int64_t bins, float* counts) {
    if (!std::isfinite(low) || !std::isfinite(high) || low > high)
        throw std::invalid_argument("histogram: low and high must be finite and in order, got " + std::to_string(low) +
                                    " and " + std::to_string(high));
    if (bins < 1 || bins > (1 << 24))
        throw std::invalid_argument("histogram: bins must be between 1 and 2^24, got " + std::to_string(bins));
    const bool narrow = low == high;
    const float from = narrow ? low - 1 : low, to = narrow ? high + 1 : high;
    if (narrow && from == to) {
        // Too large for a step of 1 to count: one bin, in the middle.
        float all = 0;
        const HistogramPass pass = count(x, n, low, high, 1, &all);
        std::fill(counts, counts + bins, 0.0f);
        counts[bins / 2] = all;
        return pass;
    }
    return count(x, n, from, to, bins, counts);
}

int64_t narrowing_ranges(const float* cumulative, double total, Narrowing& at, int64_t most, int64_t* starts,
                         int64_t* ends) {
    constexpr double kStep = 1e-5;
    int64_t count = 0;
    while (count < most && at.below < at.above) {
        const double below = at.below + kStep, above = at.above - kStep;
        const float mass_below = static_cast<float>(below * total), mass_above = static_cast<float>(above * total);
        int64_t left = at.start, right = at.end;
        while (left < at.end && cumulative[left] < mass_below) ++left;
        while (right > at.start && cumulative[right] > mass_above) --right;
        const int64_t start = at.start, end = at.end;
        if (left - start > end - right) {
            at.start = left;
            at.below = below;
        } else {
            at.end = right;
            at.above = above;
        }
        if (at.start == start && at.end == end) continue;
        starts[count] = at.start;
        ends[count] = at.end;
        ++count;
    }
    return count;
}

void bin_errors(const float* histogram, int64_t bins, double bin_width, double levels, const int64_t* starts,
                const int64_t* ends, int64_t count, float* errors) {
    const float width = static_cast<float>(bin_width);
    // PyTorch clamps to float32(levels - 1).
    const double last = static_cast<double>(static_cast<float>(levels - 1));
    constexpr int64_t kGrain = 32;  // about half a millisecond at 2048 bins
    parallel_for(count, kGrain, [&](int64_t first, int64_t past) {
        for (int64_t r = first; r < past; ++r) {
            const double step = bin_width * static_cast<double>(ends[r] - starts[r] + 1) / levels;
            float* row = errors + r * bins;
            if (step == 0.0)
                std::fill(row, row + bins, 0.0f);
            else if (levels <= (1 << 22) && std::isnormal(static_cast<float>(step)) && std::isnormal(width))
                one_range_errors<FewLevels>(histogram, bins, width, step, last, starts[r], row);
            else
                one_range_errors<AnyLevels>(histogram, bins, width, step, last, starts[r], row);
        }
    });
}

}  // namespace zeropoint
