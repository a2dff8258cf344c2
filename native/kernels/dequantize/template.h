// dequantize for any vector type V of simd/.
#pragma once

#include "kernels/dequantize/dequantize.h"
#include "kernels/params.h"
#include "kernels/grid_stretches.h"

namespace zeropoint {
namespace {

// (q - zero_point) * scale for one vector; Z and S are the types of zero_point and scale.
template <class V, class Z, class S, class PZ, class PS>
inline typename V::F dequantize_vector(typename V::I q, int64_t i, const PZ& zero_point, const PS& scale) {
    constexpr int kHalf = V::W / 2;
    constexpr bool kExact = sizeof(Z) == 8, kWide = sizeof(S) == 8;
    if constexpr (kExact) {
        const typename V::D lo = V::sub(V::low(q), zero_point.at(i)), hi = V::sub(V::high(q), zero_point.at(i + kHalf));
        if constexpr (kWide)
            return V::to_float(V::mul(lo, scale.at(i)), V::mul(hi, scale.at(i + kHalf)));
        else
            return V::mul(V::to_float(lo, hi), scale.at(i));
    } else {
        const typename V::F d = V::sub(V::to_float(q), zero_point.at(i));
        if constexpr (kWide)
            return V::to_float(V::mul(V::low(d), scale.at(i)), V::mul(V::high(d), scale.at(i + kHalf)));
        else
            return V::mul(d, scale.at(i));
    }
}

template <class V, class T, class Z, class S, class PZ, class PS>
inline void dequantize_stretch(const T* q, float* y, int64_t n, const PZ& zero_point, const PS& scale) {
    constexpr int kBlock = 4 * V::W;
    int64_t i = 0;
    for (; i + kBlock <= n; i += kBlock)
        for (int k = 0; k < kBlock; k += V::W)
            V::store(y + i + k, dequantize_vector<V, Z, S>(V::load_int(q + i + k), i + k, zero_point, scale));
    if (i == n) return;
    T q_tail[kBlock];
    float y_tail[kBlock];
    Z zero_point_tail[kBlock];
    S scale_tail[kBlock];
    const int64_t left = n - i;
    for (int64_t k = 0; k < kBlock; ++k) q_tail[k] = k < left ? q[i + k] : T{0};
    const PZ z = zero_point.tail(i, left, zero_point_tail);
    const PS s = scale.tail(i, left, scale_tail);
    for (int k = 0; k < left; k += V::W)
        V::store(y_tail + k, dequantize_vector<V, Z, S>(V::load_int(q_tail + k), k, z, s));
    for (int64_t k = 0; k < left; ++k) y[i + k] = y_tail[k];
}

template <class V, class T, class Z, class S>
void dequantize_typed(const DequantizeArgs& a, int64_t begin, int64_t end) {
    const T* q = static_cast<const T*>(a.q);
    const Z* zero_point = static_cast<const Z*>(a.zero_point);
    const S* scale = static_cast<const S*>(a.scale);
    walk(
        a.grid, begin, end,
        [&](int64_t first, int64_t count, int64_t p) {
            dequantize_stretch<V, T, Z, S>(q + first, a.y + first, count, Same<V, Z>(zero_point[p]),
                                           Same<V, S>(scale[p]));
        },
        [&](int64_t first, int64_t count, int64_t p) {
            dequantize_stretch<V, T, Z, S>(q + first, a.y + first, count, Along<V, Z>(zero_point + p),
                                           Along<V, S>(scale + p));
        });
}

template <class V, class T>
void dequantize_from(const DequantizeArgs& a, int64_t begin, int64_t end) {
    if (a.exact)
        return a.wide ? dequantize_typed<V, T, double, double>(a, begin, end)
                      : dequantize_typed<V, T, double, float>(a, begin, end);
    return a.wide ? dequantize_typed<V, T, float, double>(a, begin, end)
                  : dequantize_typed<V, T, float, float>(a, begin, end);
}

template <class V>
void dequantize_with(const DequantizeArgs& a, int64_t begin, int64_t end) {
    switch (a.src) {
        case IntType::u8: return dequantize_from<V, uint8_t>(a, begin, end);
        case IntType::s8: return dequantize_from<V, int8_t>(a, begin, end);
        case IntType::s16: return dequantize_from<V, int16_t>(a, begin, end);
        case IntType::s32: return dequantize_from<V, int32_t>(a, begin, end);
    }
}

}  // namespace
}  // namespace zeropoint
