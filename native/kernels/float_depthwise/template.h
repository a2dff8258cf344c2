// float_depthwise for any vector type V of simd/.
#pragma once

#include "kernels/simd/fused.h"
#include "kernels/float_depthwise/float_depthwise.h"

#include <cmath>

namespace zeropoint {
namespace {

// A vector of channels of kOutputs outputs.
template <class V, int kOutputs>
void float_depthwise_tile(const FloatDepthwiseArgs& a, int64_t output, int64_t c) {
    using F = typename V::F;
    F sum[kOutputs];
    for (F& s : sum) s = a.bias != nullptr ? V::load(a.bias + c) : V::set(0.0f);
    const float* x = a.x + output * a.x_step + c;
    for (int64_t t = 0; t < a.taps; ++t) {
        const F w = V::load(a.w + a.w_taps[t] + c);
        for (int i = 0; i < kOutputs; ++i) sum[i] = V::fma(V::load(x + i * a.x_step + a.x_taps[t]), w, sum[i]);
    }
    for (int i = 0; i < kOutputs; ++i) V::store(a.y + (output + i) * a.y_step + c, sum[i]);
}

template <class V>
void float_depthwise_with(const FloatDepthwiseArgs& a, int64_t begin, int64_t end) {
    constexpr int kOutputs = 6;
    int64_t c = 0;
    for (; c + V::W <= a.channels; c += V::W) {
        int64_t output = begin;
        for (; output + kOutputs <= end; output += kOutputs) float_depthwise_tile<V, kOutputs>(a, output, c);
        for (; output < end; ++output) float_depthwise_tile<V, 1>(a, output, c);
    }
    for (; c < a.channels; ++c)
        for (int64_t output = begin; output < end; ++output) {
            const float* x = a.x + output * a.x_step + c;
            float sum = a.bias != nullptr ? a.bias[c] : 0.0f;
            for (int64_t t = 0; t < a.taps; ++t) sum = fused(x[a.x_taps[t]], a.w[a.w_taps[t] + c], sum);
            a.y[output * a.y_step + c] = sum;
        }
}

}  // namespace
}  // namespace zeropoint
