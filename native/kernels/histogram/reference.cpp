// The specification of histogram, one element at a time. It is never optimized.
#include "kernels/histogram/histogram.h"

#include <cmath>

namespace zeropoint {

void histogram_reference(const HistogramArgs& a, int64_t begin, int64_t end) {
    const float low = a.low * a.shrink, width = a.high * a.shrink - low, bins = static_cast<float>(a.bins);
    for (int64_t i = begin; i < end; ++i) {
        const float x = a.x[i];
        if (std::isnan(x)) ++*a.nans;
        if (std::isinf(x)) ++*a.infinities;
        if (std::isfinite(x)) {
            if (x < *a.min) *a.min = x;
            if (x > *a.max) *a.max = x;
        }
        int64_t bin = a.bins;
        if (x >= a.low && x <= a.high) {
            const float place = ((x * a.shrink - low) * bins) / width;
            bin = place < bins - 1 ? static_cast<int64_t>(place) : a.bins - 1;
        }
        ++a.counts[(i - begin) % HistogramArgs::kCopies * (a.bins + 1) + bin];
    }
}

}  // namespace zeropoint
