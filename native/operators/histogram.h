// Histograms of a stream of tensors: counting, and the search for the range that loses least.
#pragma once

#include <cstdint>

namespace zeropoint {

struct HistogramPass {
    float min = 0, max = 0;  // of the finite values; +inf and -inf if there are none
    int64_t nans = 0, infinities = 0;
};

// Counts the values of x in [low, high] into `bins` bins (see HistogramArgs; counts is written) and finds their range.
// Where low == high the bins span [low - 1, high + 1], as torch.histc's do.
// Throws std::invalid_argument unless low and high are finite, low <= high and 1 <= bins <= 2^24.
HistogramPass histogram(const float* x, int64_t n, float low, float high, int64_t bins, float* counts);

// Where the walk over ranges of bins [start, end] is: the shares of the mass that may be cut off below and above.
struct Narrowing {
    double below = 0, above = 1;
    int64_t start = 0, end = 0;
};

// The next ranges that PyTorch's HistogramObserver visits: again and again, 1e-5 of the mass is cut off the side where
// that removes more bins. `cumulative` are the histogram's running sums. Moves `at`, which begins with all bins, and
// returns how many ranges were found: `most`, or fewer at the end of the walk.
int64_t narrowing_ranges(const float* cumulative, double total, Narrowing& at, int64_t most, int64_t* starts,
                         int64_t* ends);

// For each of `count` ranges and each bin, the squared error of quantizing the bin's values, spread evenly over it, to
// `levels` values spread evenly over the range: errors[count][bins], in float32 as PyTorch computes it.
void bin_errors(const float* histogram, int64_t bins, double bin_width, double levels, const int64_t* starts,
                const int64_t* ends, int64_t count, float* errors);

}  // namespace zeropoint
