// minmax for any vector type V of simd/.
#pragma once

#include "kernels/minmax/minmax.h"
#include "kernels/grid_stretches.h"

namespace zeropoint {
namespace {

// A comparison with NaN is false, so a NaN already in min or max stays; a NaN in x is put there explicitly.
inline void widen(float x, float& min, float& max) {
    const bool nan = x != x;
    if (nan || x < min) min = x;
    if (nan || x > max) max = x;
}

// All n elements belong to one part.
template <class V>
inline void minmax_run(const float* x, int64_t n, float& min, float& max) {
    using F = typename V::F;
    int64_t i = 0;
    if (n >= 4 * V::W) {
        F lo[4], hi[4];
        typename V::M nan = V::none();
        for (int k = 0; k < 4; ++k) lo[k] = hi[k] = V::load(x + k * V::W);
        for (; i + 4 * V::W <= n; i += 4 * V::W)
            for (int k = 0; k < 4; ++k) {
                const F v = V::load(x + i + k * V::W);
                lo[k] = V::min(v, lo[k]);
                hi[k] = V::max(v, hi[k]);
                nan = V::either(nan, V::is_nan(v));
            }
        if (V::any(nan)) {
            min = max = __builtin_nanf("");
            return;
        }
        widen(V::reduce_min(V::min(V::min(lo[0], lo[1]), V::min(lo[2], lo[3]))), min, max);
        widen(V::reduce_max(V::max(V::max(hi[0], hi[1]), V::max(hi[2], hi[3]))), min, max);
    }
    for (; i < n; ++i) widen(x[i], min, max);
}

// Element i belongs to part i.
template <class V>
inline void minmax_along(const float* x, int64_t n, float* min, float* max) {
    using F = typename V::F;
    int64_t i = 0;
    for (; i + V::W <= n; i += V::W) {
        const F v = V::load(x + i), lo = V::load(min + i), hi = V::load(max + i);
        const typename V::M nan = V::is_nan(v);
        V::store(min + i, V::select(nan, v, V::min(v, lo)));
        V::store(max + i, V::select(nan, v, V::max(v, hi)));
    }
    for (; i < n; ++i) widen(x[i], min[i], max[i]);
}

template <class V>
void minmax_with(const MinMaxArgs& a, int64_t begin, int64_t end) {
    walk(
        a.grid, begin, end,
        [&](int64_t first, int64_t count, int64_t p) { minmax_run<V>(a.x + first, count, a.min[p], a.max[p]); },
        [&](int64_t first, int64_t count, int64_t p) { minmax_along<V>(a.x + first, count, a.min + p, a.max + p); });
}

}  // namespace
}  // namespace zeropoint
