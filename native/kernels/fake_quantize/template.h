// fake_quantize for any vector type V of simd/.
#pragma once

#include "kernels/fake_quantize/fake_quantize.h"
#include "kernels/params.h"
#include "kernels/grid_stretches.h"

namespace zeropoint {
namespace {

template <class V>
struct FakeQuantizeConstants {
    typename V::F lo, hi, mask_lo, mask_hi;
    typename V::D wide_lo, wide_hi;
    explicit FakeQuantizeConstants(const FakeQuantizeArgs& a)
        : lo(V::set(static_cast<float>(a.qmin))),
          hi(V::set(static_cast<float>(a.qmax))),
          mask_lo(V::set(a.mask_lo)),
          mask_hi(V::set(a.mask_hi)),
          wide_lo(V::set(a.qmin)),
          wide_hi(V::set(a.qmax)) {}
};

// The parameters of a stretch: one for all its elements (P = Same) or one for each (P = Along).
template <class V, template <class, class> class P>
struct FakeQuantizeParameters {
    P<V, float> inv, zero_point, scale;
    P<V, double> exact_zero_point;  // read only where the way back is not single
};

template <class V, bool kJoined, Beyond kBeyond, WayBack kWayBack>
struct FakeQuantizeVector {
    using F = typename V::F;
    using D = typename V::D;
    F y;
    typename V::M mask;

    template <template <class, class> class P>
    FakeQuantizeVector(F x, int64_t i, const FakeQuantizeParameters<V, P>& p, const FakeQuantizeConstants<V>& c) {
        const F zero_point = p.zero_point.at(i), scale = p.scale.at(i);
        F v;
        if constexpr (kJoined)
            v = V::add(V::round(V::fma(x, p.inv.at(i), zero_point)), V::set(0.0f));  // + 0 turns -0 into the integer 0
        else
            v = V::add(V::round(V::mul(x, p.inv.at(i))), zero_point);
        mask = V::inside(v, c.mask_lo, c.mask_hi);
        if constexpr (kBeyond == Beyond::nan_low) v = V::select(V::is_nan(v), c.lo, v);
        if constexpr (kBeyond == Beyond::int64_low) v = V::select(V::less(v, V::set(9223372036854775808.0f)), v, c.lo);
        if constexpr (kWayBack == WayBack::single) {
            y = V::mul(V::sub(V::clamp(v, c.lo, c.hi), zero_point), scale);
        } else {
            const D a = V::sub(V::clamp(V::low(v), c.wide_lo, c.wide_hi), p.exact_zero_point.at(i));
            const D b = V::sub(V::clamp(V::high(v), c.wide_lo, c.wide_hi), p.exact_zero_point.at(i + V::W / 2));
            if constexpr (kWayBack == WayBack::exact)
                y = V::mul(V::to_float(a, b), scale);
            else
                y = V::to_float(V::mul(a, V::low(scale)), V::mul(b, V::high(scale)));
        }
    }
};

template <class V, bool kJoined, Beyond kBeyond, WayBack kWayBack, template <class, class> class P>
inline void fake_quantize_block(const float* x, float* y, uint8_t* mask, int64_t i,
                                const FakeQuantizeParameters<V, P>& p, const FakeQuantizeConstants<V>& c) {
    using Vec = FakeQuantizeVector<V, kJoined, kBeyond, kWayBack>;
    constexpr int W = V::W;
    const auto at = [&](int64_t j) { return Vec(V::load(x + j), j, p, c); };
    const Vec a = at(i), b = at(i + W), d = at(i + 2 * W), e = at(i + 3 * W);
    V::store(y + i, a.y);
    V::store(y + i + W, b.y);
    V::store(y + i + 2 * W, d.y);
    V::store(y + i + 3 * W, e.y);
    if (mask != nullptr) V::store4(mask + i, V::ones(a.mask), V::ones(b.mask), V::ones(d.mask), V::ones(e.mask));
}

template <class V, bool kJoined, Beyond kBeyond, WayBack kWayBack, template <class, class> class P>
inline void fake_quantize_stretch(const float* x, float* y, uint8_t* mask, int64_t n,
                                  const FakeQuantizeParameters<V, P>& p, const FakeQuantizeConstants<V>& c) {
    constexpr int kBlock = 4 * V::W;
    int64_t i = 0;
    for (; i + kBlock <= n; i += kBlock) fake_quantize_block<V, kJoined, kBeyond, kWayBack>(x, y, mask, i, p, c);
    if (i == n) return;
    float x_tail[kBlock], y_tail[kBlock], inv_tail[kBlock], zero_point_tail[kBlock], scale_tail[kBlock];
    double exact_tail[kBlock];
    uint8_t mask_tail[kBlock];
    const int64_t left = n - i;
    for (int64_t k = 0; k < kBlock; ++k) x_tail[k] = k < left ? x[i + k] : 0.0f;
    FakeQuantizeParameters<V, P> tail = {p.inv.tail(i, left, inv_tail), p.zero_point.tail(i, left, zero_point_tail),
                                         p.scale.tail(i, left, scale_tail), p.exact_zero_point};
    if constexpr (kWayBack != WayBack::single) tail.exact_zero_point = p.exact_zero_point.tail(i, left, exact_tail);
    fake_quantize_block<V, kJoined, kBeyond, kWayBack>(x_tail, y_tail, mask_tail, 0, tail, c);
    for (int64_t k = 0; k < left; ++k) y[i + k] = y_tail[k];
    if (mask != nullptr)
        for (int64_t k = 0; k < left; ++k) mask[i + k] = mask_tail[k];
}

template <class V, bool kJoined, Beyond kBeyond, WayBack kWayBack>
void fake_quantize_typed(const FakeQuantizeArgs& a, int64_t begin, int64_t end) {
    const FakeQuantizeConstants<V> c(a);
    const bool exact = kWayBack != WayBack::single;
    const auto mask_at = [&](int64_t first) { return a.mask != nullptr ? a.mask + first : nullptr; };
    walk(
        a.grid, begin, end,
        [&](int64_t first, int64_t count, int64_t p) {
            const FakeQuantizeParameters<V, Same> one = {Same<V, float>(a.inv[p]), Same<V, float>(a.zero_point[p]),
                                                         Same<V, float>(a.scale[p]),
                                                         Same<V, double>(exact ? a.exact_zero_point[p] : 0.0)};
            fake_quantize_stretch<V, kJoined, kBeyond, kWayBack>(a.x + first, a.y + first, mask_at(first), count, one,
                                                                 c);
        },
        [&](int64_t first, int64_t count, int64_t p) {
            const FakeQuantizeParameters<V, Along> many = {
                Along<V, float>(a.inv + p), Along<V, float>(a.zero_point + p), Along<V, float>(a.scale + p),
                Along<V, double>(exact ? a.exact_zero_point + p : nullptr)};
            fake_quantize_stretch<V, kJoined, kBeyond, kWayBack>(a.x + first, a.y + first, mask_at(first), count, many,
                                                                 c);
        });
}

template <class V, bool kJoined, Beyond kBeyond>
void fake_quantize_back(const FakeQuantizeArgs& a, int64_t begin, int64_t end) {
    switch (a.way_back) {
        case WayBack::single: return fake_quantize_typed<V, kJoined, kBeyond, WayBack::single>(a, begin, end);
        case WayBack::exact: return fake_quantize_typed<V, kJoined, kBeyond, WayBack::exact>(a, begin, end);
        case WayBack::exact_product:
            return fake_quantize_typed<V, kJoined, kBeyond, WayBack::exact_product>(a, begin, end);
    }
}

template <class V, bool kJoined>
void fake_quantize_beyond(const FakeQuantizeArgs& a, int64_t begin, int64_t end) {
    switch (a.beyond) {
        case Beyond::keep_nan: return fake_quantize_back<V, kJoined, Beyond::keep_nan>(a, begin, end);
        case Beyond::nan_low: return fake_quantize_back<V, kJoined, Beyond::nan_low>(a, begin, end);
        case Beyond::int64_low: return fake_quantize_back<V, kJoined, Beyond::int64_low>(a, begin, end);
    }
}

template <class V>
void fake_quantize_with(const FakeQuantizeArgs& a, int64_t begin, int64_t end) {
    return a.joined ? fake_quantize_beyond<V, true>(a, begin, end) : fake_quantize_beyond<V, false>(a, begin, end);
}

}  // namespace
}  // namespace zeropoint
