// quantize_range for any vector type V of simd/.
#pragma once

#include "kernels/quantize_range/quantize_range.h"

#include <cstring>

namespace zeropoint {
namespace {

template <class V>
struct RangeQuantizer {
    using F = typename V::F;
    F low, inv, qmax;

    explicit RangeQuantizer(const QuantizeRangeArgs& a)
        : low(V::set(a.low)),
          inv(V::set(a.inv)),
          qmax(V::set(a.qmax)) {}

    // What is below 0 saturates when it is stored; NaN stays NaN here, becomes INT_MIN, and so 0.
    typename V::I operator()(const float* x) const {
        return V::round_to_int(V::min(qmax, V::mul(V::sub(V::load(x), low), inv)));
    }
    void four(const float* x, uint8_t* y) const {
        V::store4_saturated(y, (*this)(x), (*this)(x + V::W), (*this)(x + 2 * V::W), (*this)(x + 3 * V::W));
    }
};

template <class V>
void quantize_range_with(const QuantizeRangeArgs& a, int64_t begin, int64_t end) {
    constexpr int64_t kStep = 4 * V::W;
    const RangeQuantizer<V> quantize(a);
    int64_t i = begin;
    for (; i + kStep <= end; i += kStep) quantize.four(a.x + i, a.y + i);
    if (i == end) return;
    float x[kStep] = {};
    uint8_t y[kStep];
    std::memcpy(x, a.x + i, static_cast<size_t>(end - i) * sizeof(float));
    quantize.four(x, y);
    std::memcpy(a.y + i, y, static_cast<size_t>(end - i));
}

}  // namespace
}  // namespace zeropoint
