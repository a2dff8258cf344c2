// softmax for any vector type V of simd/.
#pragma once

#include "kernels/softmax/softmax.h"

namespace zeropoint {
namespace {

template <class V, class T>
struct SoftmaxRows {
    using F = typename V::F;
    using I = typename V::I;
    static constexpr int64_t kBlock = 4 * V::W;
    static constexpr int kLanes = SoftmaxArgs::kLanes;
    static_assert(kBlock <= SoftmaxArgs::kRoom && kLanes % V::W == 0);

    const SoftmaxArgs& a;
    F inverse, zero_point, low, high;

    explicit SoftmaxRows(const SoftmaxArgs& args)
        : a(args),
          inverse(V::set(a.inverse)),
          zero_point(V::set(static_cast<float>(a.zero_point))),
          low(V::set(static_cast<float>(a.lo))),
          high(V::set(static_cast<float>(a.hi))) {}

    T largest_of(const T* x) const {
        T largest = x[0];
        for (int64_t i = 0; i < a.length; ++i) largest = x[i] > largest ? x[i] : largest;
        return largest;
    }
    // Of e, which ends with zeros.
    float sum_of(const float* e) const {
        constexpr int kParts = kLanes / V::W;
        F parts[kParts];
        for (F& part : parts) part = V::set(0.0f);
        for (int64_t i = 0; i < a.length; i += kLanes)
            for (int k = 0; k < kParts; ++k) parts[k] = V::add(parts[k], V::load(e + i + k * V::W));
        float lanes[kLanes];
        for (int k = 0; k < kParts; ++k) V::store(lanes + k * V::W, parts[k]);
        for (int half = kLanes / 2; half > 0; half /= 2)
            for (int k = 0; k < half; ++k) lanes[k] += lanes[k + half];
        return lanes[0];
    }
    I one(const float* e, F factor) const {
        const F v = V::fma(V::mul(V::load(e), factor), inverse, zero_point);
        return V::round_to_int(V::clamp_nan_high(v, low, high));
    }
    void block(const float* e, T* y, F factor) const {
        const I p = one(e, factor), q = one(e + V::W, factor), r = one(e + 2 * V::W, factor),
                s = one(e + 3 * V::W, factor);
        V::store4_saturated(y, p, q, r, s);
    }
    void run(int64_t begin, int64_t end, float* e) const {
        for (int64_t i = 0; i < SoftmaxArgs::kRoom; ++i) e[a.length + i] = 0.0f;
        for (int64_t row = begin; row < end; ++row) {
            const T* x = reinterpret_cast<const T*>(a.x) + row * a.length;
            T* y = reinterpret_cast<T*>(a.y) + row * a.length;
            const T largest = largest_of(x);
            for (int64_t i = 0; i < a.length; ++i) e[i] = a.table[largest - x[i]];
            const F factor = V::set(1.0f / sum_of(e));
            int64_t i = 0;
            for (; i + kBlock <= a.length; i += kBlock) block(e + i, y + i, factor);
            if (i == a.length) continue;
            T last[kBlock];
            block(e + i, last, factor);
            for (int64_t k = i; k < a.length; ++k) y[k] = last[k - i];
        }
    }
};

template <class V>
void softmax_with(const SoftmaxArgs& a, int64_t begin, int64_t end, float* scratch) {
    if (a.type == IntType::u8) return SoftmaxRows<V, uint8_t>(a).run(begin, end, scratch);
    return SoftmaxRows<V, int8_t>(a).run(begin, end, scratch);
}

}  // namespace
}  // namespace zeropoint
