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
        float lanes[kLanes];
        if (i < end) {
            for (int k = 0; k < kLanes; ++k) lanes[k] = i + k < end ? x[i + k] : filler;
            for (int k = 0; k < kParts; ++k) parts[k] = next(parts[k], V::load(lanes + k * V::W));
            i = end;
        }
        for (int k = 0; k < kParts; ++k) V::store(lanes + k * V::W, parts[k]);
        for (int half = kLanes / 2; half > 0; half /= 2)
            for (int k = 0; k < half; ++k) lanes[k] += lanes[k + half];
        total += static_cast<double>(lanes[0]);
    }
    return total;
}

template <class V>
void float_layer_norm_with(const FloatLayerNormArgs& a, int64_t begin, int64_t end) {
    using F = typename V::F;
    const double count = static_cast<double>(a.length);
    for (int64_t row = begin; row < end; ++row) {
        const float* x = a.x + row * a.length;
        float* y = a.y + row * a.length;
        const double sum = float_sum<V>(x, a.length, 0.0f, [](F s, F v) { return V::add(s, v); });
        const float mean = static_cast<float>(sum / count);
        const F m = V::set(mean);
        const double squares = float_sum<V>(x, a.length, mean, [&](F s, F v) {
            const F d = V::sub(v, m);
            return V::fma(d, d, s);
        });
        const double variance = static_cast<double>(static_cast<float>(squares / count));
        const F r = V::set(static_cast<float>(1.0 / std::sqrt(variance + a.eps)));
        const auto one = [&](const float* from, const float* weight, const float* bias) {
            return V::fma(V::mul(V::sub(V::load(from), m), r), V::load(weight), V::load(bias));
        };
        int64_t i = 0;
        for (; i + V::W <= a.length; i += V::W) V::store(y + i, one(x + i, a.weight + i, a.bias + i));
        if (i == a.length) continue;
        float last[V::W] = {}, weight[V::W] = {}, bias[V::W] = {};
        for (int64_t k = i; k < a.length; ++k) {
            last[k - i] = x[k];
            weight[k - i] = a.weight[k];
            bias[k - i] = a.bias[k];
        }
        V::store(last, one(last, weight, bias));
        for (int64_t k = i; k < a.length; ++k) y[k] = last[k - i];
    }
}

}  // namespace
}  // namespace zeropoint
