// histogram: how many values fall into each bin of a range, and the smallest and largest value, in one pass.
#pragma once

#include <cstdint>

namespace zeropoint {

// The value x in [low, high] belongs to bin min(int(((x - low) * bins) / (high - low)), bins - 1), every operation
// rounded to float32: torch.histc's formula. With `shrink`, a power of two, x, low and high are multiplied by it first,
// so that ranges wide enough to overflow the formula do not.
//
// counts holds kCopies rows of bins + 1 counters, all to be added up: neighbours count into different rows, because a
// counter that is hit again at once waits for its last store. The extra counter takes what lies outside the range.
// min and max are widened by the finite values; NaN and infinities are counted beside them.
struct HistogramArgs {
    static constexpr int64_t kCopies = 4;
    const float* x = nullptr;
    float low = 0, high = 0, shrink = 1;
    int64_t bins = 0;  // at most 2^24
    uint32_t* counts = nullptr;
    float* min = nullptr;
    float* max = nullptr;
    int64_t* nans = nullptr;
    int64_t* infinities = nullptr;
};

// Elements [begin, end) of x, fewer than 2^32.
using HistogramFn = void (*)(const HistogramArgs&, int64_t begin, int64_t end);

}  // namespace zeropoint
