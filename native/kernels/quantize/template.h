// quantize for any vector type V of simd/. Blocks of four vectors, so that 8-bit results leave as one store.
#pragma once

#include "kernels/params.h"
#include "kernels/quantize/quantize.h"
#include "kernels/grid_stretches.h"
#include "kernels/conversions.h"

namespace zeropoint {
namespace {

template <class V, class C>
struct QuantizeRange {
    decltype(V::set(C{})) lo, hi;
    int32_t int_lo, int_hi;
    explicit QuantizeRange(const QuantizeArgs& a)
        : lo(V::set(static_cast<C>(a.qmin))),
          hi(V::set(static_cast<C>(a.qmax))),
          int_lo(to_int32(a.qmin)),
          int_hi(to_int32(a.qmax)) {}
};

// One vector of results in float32 arithmetic.
template <class V, RoundingVariant S, class T>
inline typename V::I quantize_vector(typename V::F x, typename V::F inv, typename V::F zero_point,
                                     const QuantizeRange<V, float>& r) {
    if constexpr (S == RoundingVariant::split) {
        return V::to_int(V::clamp(V::add(V::round(V::mul(x, inv)), zero_point), r.lo, r.hi));
    } else if constexpr (S == RoundingVariant::fused) {
        return V::to_int(V::clamp_nan_high(V::round(V::fma(x, inv, zero_point)), r.lo, r.hi));
    } else {
        const typename V::F v = V::round(V::add(V::mul(x, inv), zero_point));
        if constexpr (S == RoundingVariant::saturating && sizeof(T) == 4) {
            return V::flip_min(V::to_int(v), V::at_least(v, V::set(2147483648.0f)));
        } else if constexpr (S == RoundingVariant::wrapping) {
            // Beyond int32 lies a mistake in the qparams; PyTorch's answer there is the low 32 bits, lane by lane.
            if (__builtin_expect(!V::all(V::inside(v, V::set(-2147483648.0f), V::set(2147483520.0f))), 0)) {
                float values[V::W];
                int32_t wrapped[V::W];
                V::store(values, v);
                for (int i = 0; i < V::W; ++i) {
                    const int32_t q = low32(to_int64(static_cast<double>(values[i])));
                    wrapped[i] = q < r.int_lo ? r.int_lo : (q > r.int_hi ? r.int_hi : q);
                }
                return V::load_int(wrapped);
            }
            return V::to_int(V::clamp(v, r.lo, r.hi));
        } else {
            return V::to_int(V::clamp(v, r.lo, r.hi));
        }
    }
}

// One vector of results in float64 arithmetic: two halves.
template <class V, RoundingVariant S>
inline typename V::D quantize_half(typename V::D x, typename V::D inv, typename V::D zero_point,
                                   const QuantizeRange<V, double>& r) {
    if constexpr (S == RoundingVariant::split)
        return V::clamp(V::add(V::round(V::mul(x, inv)), zero_point), r.lo, r.hi);
    else
        return V::clamp(V::round(V::add(V::mul(x, inv), zero_point)), r.lo, r.hi);
}

template <class V, RoundingVariant S, class T, class P>
inline typename V::I quantize_at(const float* x, int64_t i, const P& inv, const P& zero_point,
                                 const QuantizeRange<V, float>& r) {
    return quantize_vector<V, S, T>(V::load(x + i), inv.at(i), zero_point.at(i), r);
}

template <class V, RoundingVariant S, class T, class P>
inline typename V::I quantize_at(const float* x, int64_t i, const P& inv, const P& zero_point,
                                 const QuantizeRange<V, double>& r) {
    constexpr int kHalf = V::W / 2;
    const typename V::F v = V::load(x + i);
    return V::to_int(quantize_half<V, S>(V::low(v), inv.at(i), zero_point.at(i), r),
                     quantize_half<V, S>(V::high(v), inv.at(i + kHalf), zero_point.at(i + kHalf), r));
}

template <class V, RoundingVariant S, class T, class C, class P>
inline void quantize_block(const float* x, T* y, int64_t i, const P& inv, const P& zero_point,
                           const QuantizeRange<V, C>& r) {
    constexpr int W = V::W;
    V::store4(y + i, quantize_at<V, S, T>(x, i, inv, zero_point, r), quantize_at<V, S, T>(x, i + W, inv, zero_point, r),
              quantize_at<V, S, T>(x, i + 2 * W, inv, zero_point, r),
              quantize_at<V, S, T>(x, i + 3 * W, inv, zero_point, r));
}

template <class V, RoundingVariant S, class T, class C, class P>
inline void quantize_stretch(const float* x, T* y, int64_t n, const P& inv, const P& zero_point,
                             const QuantizeRange<V, C>& r) {
    constexpr int kBlock = 4 * V::W;
    int64_t i = 0;
    for (; i + kBlock <= n; i += kBlock) quantize_block<V, S, T>(x, y, i, inv, zero_point, r);
    if (i == n) return;
    float x_tail[kBlock];
    T y_tail[kBlock];
    C inv_tail[kBlock], zero_point_tail[kBlock];
    const int64_t left = n - i;
    for (int64_t k = 0; k < kBlock; ++k) x_tail[k] = k < left ? x[i + k] : 0.0f;
    quantize_block<V, S, T>(x_tail, y_tail, 0, inv.tail(i, left, inv_tail), zero_point.tail(i, left, zero_point_tail),
                            r);
    for (int64_t k = 0; k < left; ++k) y[i + k] = y_tail[k];
}

template <class V, RoundingVariant S, class T, class C>
void quantize_typed(const QuantizeArgs& a, int64_t begin, int64_t end) {
    const QuantizeRange<V, C> range(a);
    const C* inv = static_cast<const C*>(a.inv);
    const C* zero_point = static_cast<const C*>(a.zero_point);
    T* y = static_cast<T*>(a.y);
    walk(
        a.grid, begin, end,
        [&](int64_t first, int64_t count, int64_t p) {
            quantize_stretch<V, S, T, C>(a.x + first, y + first, count, Same<V, C>(inv[p]), Same<V, C>(zero_point[p]),
                                         range);
        },
        [&](int64_t first, int64_t count, int64_t p) {
            quantize_stretch<V, S, T, C>(a.x + first, y + first, count, Along<V, C>(inv + p),
                                         Along<V, C>(zero_point + p), range);
        });
}

template <class V, class T>
void quantize_to(const QuantizeArgs& a, int64_t begin, int64_t end) {
    if (a.wide)
        return a.variant == RoundingVariant::split
                   ? quantize_typed<V, RoundingVariant::split, T, double>(a, begin, end)
                   : quantize_typed<V, RoundingVariant::joined, T, double>(a, begin, end);
    switch (a.variant) {
        case RoundingVariant::split: return quantize_typed<V, RoundingVariant::split, T, float>(a, begin, end);
        case RoundingVariant::joined: return quantize_typed<V, RoundingVariant::joined, T, float>(a, begin, end);
        case RoundingVariant::fused: return quantize_typed<V, RoundingVariant::fused, T, float>(a, begin, end);
        case RoundingVariant::saturating:
            return quantize_typed<V, RoundingVariant::saturating, T, float>(a, begin, end);
        case RoundingVariant::wrapping: return quantize_typed<V, RoundingVariant::wrapping, T, float>(a, begin, end);
    }
}

template <class V>
void quantize_with(const QuantizeArgs& a, int64_t begin, int64_t end) {
    switch (a.dst) {
        case IntType::u8: return quantize_to<V, uint8_t>(a, begin, end);
        case IntType::s8: return quantize_to<V, int8_t>(a, begin, end);
        case IntType::s16: return quantize_to<V, int16_t>(a, begin, end);
        case IntType::s32: return quantize_to<V, int32_t>(a, begin, end);
    }
}

}  // namespace
}  // namespace zeropoint
