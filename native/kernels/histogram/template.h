// histogram for any vector type V of simd/.
#pragma once

#include "kernels/histogram/histogram.h"

namespace zeropoint {
namespace {

template <class V>
void histogram_with(const HistogramArgs& a, int64_t begin, int64_t end) {
    using F = typename V::F;
    constexpr float kLargest = 0x1.fffffep+127f, kInfinity = __builtin_inff();
    constexpr int64_t kCopies = HistogramArgs::kCopies;
    static_assert(V::W % kCopies == 0);
    const float low = a.low * a.shrink, width = a.high * a.shrink - low, bins = static_cast<float>(a.bins);
    const F lows = V::set(a.low), highs = V::set(a.high), shrink = V::set(a.shrink), from = V::set(low),
            widths = V::set(width), all = V::set(bins), last = V::set(bins - 1), zero = V::set(0.0f);
    const F smallest = V::set(-kLargest), largest = V::set(kLargest), plus = V::set(kInfinity),
            minus = V::set(-kInfinity);
    const int64_t row = a.bins + 1;
    F lo = V::set(*a.min), hi = V::set(*a.max);
    alignas(64) int32_t bin[V::W];
    alignas(64) float padded[V::W];
    for (int64_t i = begin; i < end; i += V::W) {
        const int64_t n = end - i < V::W ? end - i : V::W;
        const float* x = a.x + i;
        if (n < V::W) {
            for (int k = 0; k < V::W; ++k) padded[k] = x[k < n ? k : 0];
            x = padded;
        }
        const F v = V::load(x);
        const typename V::M finite = V::inside(v, smallest, largest);
        lo = V::min(V::select(finite, v, plus), lo);
        hi = V::max(V::select(finite, v, minus), hi);
        if (!V::all(finite)) {
            for (int k = 0; k < n; ++k) {
                const bool nan = x[k] != x[k];
                *a.nans += nan;
                *a.infinities += !nan && (x[k] > kLargest || x[k] < -kLargest);
            }
        }
        const F place = V::div(V::mul(V::sub(V::mul(v, shrink), from), all), widths);
        // NaN, from 0 / 0 or from x, becomes the last bin; what is outside the range leaves it at once.
        const F kept = V::select(V::inside(v, lows, highs), V::clamp_nan_high(place, zero, last), all);
        V::store_int(bin, V::to_int(kept));
        if (n == V::W) {
            for (int k = 0; k < V::W; k += static_cast<int>(kCopies))
                for (int c = 0; c < kCopies; ++c) ++a.counts[c * row + bin[k + c]];
        } else {
            for (int k = 0; k < n; ++k) ++a.counts[k % kCopies * row + bin[k]];
        }
    }
    *a.min = V::reduce_min(lo);
    *a.max = V::reduce_max(hi);
}

}  // namespace
}  // namespace zeropoint
