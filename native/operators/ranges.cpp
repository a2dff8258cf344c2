#include "operators/ranges.h"

#include "cpu/threads.h"
#include "kernels/half.h"
#include "kernels/registry.h"

#include <cmath>
#include <limits>
#include <vector>

namespace zeropoint {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

void widen(float& min, float& max, float other_min, float other_max) {
    if (std::isnan(other_min) || other_min < min) min = other_min;
    if (std::isnan(other_max) || other_max > max) max = other_max;
}

// The nearest float16 value, as a float.
float round_to_half(float x) { return from_half(to_half(x)); }

LossCandidate candidate(float low, float high, float qmax) {
    LossCandidate c;
    c.low = round_to_half(low);
    const float range = high - c.low;
    c.scale = round_to_half(range == 0.0f ? 1.0f : range / qmax);
    c.inv = 1.0f / c.scale;
    return c;
}

}  // namespace

void minmax(const float* x, const Grid& grid, int64_t parts, float* min, float* max) {
    constexpr int64_t kGrain = 32768;
    for (int64_t p = 0; p < parts; ++p) {
        min[p] = kInf;
        max[p] = -kInf;
    }
    const MinMaxFn kernel = kernels().minmax;
    const int64_t row_size = grid.segments * grid.length;
    const int64_t n = grid.numel();
    if (grid.row_base == nullptr && grid.row_stride > 0) {
        // Every part lies in one row: rows can go to different threads.
        const MinMaxArgs args{x, grid, min, max};
        const int64_t rows_per_task = row_size == 0 ? 1 : (kGrain + row_size - 1) / row_size;
        parallel_for(grid.rows, rows_per_task,
                     [&](int64_t begin, int64_t end) { kernel(args, begin * row_size, end * row_size); });
    } else {
        // Parts cross the tasks: each task gets its own results, merged in order afterwards.
        constexpr int64_t kTasks = 16;
        int64_t chunk = (n + kTasks - 1) / kTasks;
        chunk = chunk < kGrain ? kGrain : chunk;
        const int64_t tasks = n == 0 ? 0 : (n + chunk - 1) / chunk;
        if (tasks <= 1 || parts * tasks > n) {
            kernel(MinMaxArgs{x, grid, min, max}, 0, n);
        } else {
            std::vector<float> lows(static_cast<size_t>(tasks * parts), kInf),
                highs(static_cast<size_t>(tasks * parts), -kInf);
            parallel_for(tasks, 1, [&](int64_t begin, int64_t end) {
                for (int64_t t = begin; t < end; ++t)
                    kernel(MinMaxArgs{x, grid, lows.data() + t * parts, highs.data() + t * parts}, t * chunk,
                           (t + 1) * chunk < n ? (t + 1) * chunk : n);
            });
            for (int64_t t = 0; t < tasks; ++t)
                for (int64_t p = 0; p < parts; ++p)
                    widen(min[p], max[p], lows[static_cast<size_t>(t * parts + p)],
                          highs[static_cast<size_t>(t * parts + p)]);
        }
    }
    for (int64_t p = 0; p < parts; ++p) {
        min[p] += 0.0f;  // -0 becomes +0, so that no instruction set or thread count shows
        max[p] += 0.0f;
    }
}

Range least_loss_range(const float* x, int64_t n, int bins, float ratio, int bits) {
    Range range;
    minmax(x, {1, 1, n, 0, nullptr}, 1, &range.low, &range.high);
    const QuantizationLossFn kernel = kernels().quantization_loss;
    const float qmax = static_cast<float>((1 << bits) - 1);
    QuantizationLossArgs args;
    args.x = x;
    args.n = n;
    args.qmax = qmax;

    args.candidate[0] = args.candidate[1] = candidate(range.low, range.high, qmax);
    kernel(args);
    float loss = std::sqrt(args.loss[0]);

    const float step = (range.high - range.low) / static_cast<float>(bins);
    const float kept = static_cast<float>(bins) * (1.0f - ratio) * step;
    // A local optimum on the way must beat the whole range, too.
    Range current = range, best = range;
    float best_loss = loss;
    while (current.low + kept < current.high) {
        args.candidate[0] = candidate(current.low + step, current.high, qmax);
        args.candidate[1] = candidate(current.low, current.high - step, qmax);
        kernel(args);
        const float from_left = std::sqrt(args.loss[0]), from_right = std::sqrt(args.loss[1]);
        if (loss < from_left && loss < from_right && loss < best_loss) {
            best = current;
            best_loss = loss;
        }
        const bool left = from_left < from_right;
        loss = left ? from_left : from_right;
        float& side = left ? current.low : current.high;
        const float moved = left ? side + step : side - step;
        if (moved == side) break;  // the step is lost in rounding: PyTorch would never come back
        side = moved;
    }
    return best;
}

}  // namespace zeropoint
