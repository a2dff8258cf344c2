// float_layer_norm for any vector type V of simd/.
#pragma once

#include "kernels/float_layer_norm/float_layer_norm.h"

#include <cmath>

namespace zeropoint {
namespace {

// The sum over a row: next(sum, elements) adds some of them. What is missing from the last 32 is taken as `filler`.
template <class V, class Next>
double float_sum(const float* x, int64_t length, float filler, const Next& next) {
    using F = typename V::F;
    constexpr int kLanes = FloatLayerNormArgs::kLanes, kParts = kLanes / V::W;
    static_assert(kLanes % V::W == 0 && FloatLayerNormArgs::kBlock % kLanes == 0);
    double total = 0;
    for (int64_t i = 0; i < length;) {
        const int64_t end = length - i > FloatLayerNormArgs::kBlock ? i + FloatLayerNormArgs::kBlock : length;
        F parts[kParts];
        for (F& part : parts) part = V::set(0.0f);
        for (; i + kLanes <= end; i += kLanes)
            for (int k = 0; k < kParts; ++k) parts[k] = next(parts[k], V::load(x + i + k * V::W));
        if (i < end) {
            float lanes[kLanes];
            for (int k = 0; k < kLanes; ++k) lanes[k] = i + k < end ? x[i + k] : filler;
            for (int k = 0; k < kParts; ++k) parts[k] = next(parts[k], V::load(lanes + k * V::W));
            i = end;
        }
        for (int half = kParts / 2; half > 0; half /= 2)
            for (int k = 0; k < half; ++k) parts[k] = V::add(parts[k], parts[k + half]);
        total += static_cast<double>(V::reduce_add(parts[0]));
    }
    return total;
}

// sum = x + other, for the elements [begin, end).
template <class V>
inline void add_rows(const FloatLayerNormArgs& a, float* sum, int64_t begin, int64_t end) {
    int64_t i = begin;
    for (; i + V::W <= end; i += V::W) V::store(sum + i, V::add(V::load(a.x + i), V::load(a.other + i)));
    for (; i < end; ++i) sum[i] = a.x[i] + a.other[i];
}

// kRows rows from `row` on, all of them through one part after the other: the end of a sum is a long chain, during
// which there is work on the next row.
template <class V, int kRows>
inline void float_layer_norm_rows(const FloatLayerNormArgs& a, int64_t row) {
    using F = typename V::F;
    const double count = static_cast<double>(a.length);
    float mean[kRows], r[kRows];
    float* const sum = a.sum != nullptr ? a.sum : a.y;
    const float* const rows = a.other != nullptr ? sum : a.x;
    if (a.other != nullptr) add_rows<V>(a, sum, row * a.length, (row + kRows) * a.length);
    for (int k = 0; k < kRows; ++k) {
        mean[k] = 0;
        if (!a.centered) continue;
        const float* x = rows + (row + k) * a.length;
        const double sum = float_sum<V>(x, a.length, 0.0f, [](F s, F v) { return V::add(s, v); });
        mean[k] = static_cast<float>(sum / count);
    }
    for (int k = 0; k < kRows; ++k) {
        const F m = V::set(mean[k]);
        const double squares = float_sum<V>(rows + (row + k) * a.length, a.length, mean[k], [&](F s, F v) {
            const F d = V::sub(v, m);
            return V::fma(d, d, s);
        });
        const double variance = static_cast<double>(static_cast<float>(squares / count));
        r[k] = static_cast<float>(1.0 / std::sqrt(variance + a.eps));
    }
    for (int k = 0; k < kRows; ++k) {
        const float* x = rows + (row + k) * a.length;
        float* y = a.y + (row + k) * a.length;
        const F m = V::set(mean[k]), factor = V::set(r[k]);
        const auto one = [&](const float* from, const float* weight, const float* bias) {
            return V::fma(V::mul(V::sub(V::load(from), m), factor), V::load(weight), V::load(bias));
        };
        int64_t i = 0;
        for (; i + V::W <= a.length; i += V::W) V::store(y + i, one(x + i, a.weight + i, a.bias + i));
        if (i == a.length) continue;
        float last[V::W] = {}, weight[V::W] = {}, bias[V::W] = {};
        for (int64_t c = i; c < a.length; ++c) {
            last[c - i] = x[c];
            weight[c - i] = a.weight[c];
            bias[c - i] = a.bias[c];
        }
        V::store(last, one(last, weight, bias));
        for (int64_t c = i; c < a.length; ++c) y[c] = last[c - i];
    }
}

template <class V>
void float_layer_norm_with(const FloatLayerNormArgs& a, int64_t begin, int64_t end) {
    constexpr int kRows = 4;
    int64_t row = begin;
    for (; row + kRows <= end; row += kRows) float_layer_norm_rows<V, kRows>(a, row);
    for (; row < end; ++row) float_layer_norm_rows<V, 1>(a, row);
}

}  // namespace
}  // namespace zeropoint
