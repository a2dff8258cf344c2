// The specification of float_layer_norm, one element at a time. It is never optimized.
#include "kernels/float_layer_norm/float_layer_norm.h"
#include "kernels/simd/fused.h"

#include <algorithm>
#include <cmath>

namespace zeropoint {
namespace {

template <class Next>
double sum(const float* x, int64_t length, const Next& next) {
    double total = 0;
    for (int64_t block = 0; block < length; block += FloatLayerNormArgs::kBlock) {
        float lanes[FloatLayerNormArgs::kLanes] = {};
        for (int64_t i = block; i < std::min(length, block + FloatLayerNormArgs::kBlock); ++i) {
            float& lane = lanes[i % FloatLayerNormArgs::kLanes];
            lane = next(lane, x[i]);
        }
        for (int half = FloatLayerNormArgs::kLanes / 2; half > 0; half /= 2)
            for (int k = 0; k < half; ++k) lanes[k] += lanes[k + half];
        total += static_cast<double>(lanes[0]);
    }
    return total;
}

}  // namespace

void float_layer_norm_reference(const FloatLayerNormArgs& a, int64_t begin, int64_t end) {
    const double count = static_cast<double>(a.length);
    for (int64_t row = begin; row < end; ++row) {
        const float* x = a.x + row * a.length;
        float* const y = a.y + row * a.length;
        if (a.other != nullptr) {
            float* const sum = a.sum != nullptr ? a.sum + row * a.length : y;
            for (int64_t i = 0; i < a.length; ++i) sum[i] = x[i] + a.other[row * a.length + i];
            x = sum;
        }
        const float mean =
            a.centered ? static_cast<float>(sum(x, a.length, [](float lane, float v) { return lane + v; }) / count)
                       : 0.0f;
        const double squares = sum(x, a.length, [&](float lane, float v) { return fused(v - mean, v - mean, lane); });
        const double variance = static_cast<double>(static_cast<float>(squares / count));
        const float r = static_cast<float>(1.0 / std::sqrt(variance + a.eps));
        for (int64_t i = 0; i < a.length; ++i) y[i] = fused((x[i] - mean) * r, a.weight[i], a.bias[i]);
    }
}

}  // namespace zeropoint
