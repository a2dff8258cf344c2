// softmax for any vector type V of simd/.
#pragma once

#include "kernels/softmax/softmax.h"

#include <cstring>
#include <limits>
#include <type_traits>

namespace zeropoint {
namespace {

template <class V, class T>
struct SoftmaxRows {
    using F = typename V::F;
    static constexpr int64_t kBlock = 4 * V::W;
    static constexpr int kLanes = SoftmaxArgs::kLanes;
    static constexpr T kLeast = std::numeric_limits<T>::min();
    static_assert(kBlock <= SoftmaxArgs::kRoom && kLanes % V::W == 0);

    const SoftmaxArgs& a;
    F inverse, zero_point, most;

    explicit SoftmaxRows(const SoftmaxArgs& args)
        : a(args),
          inverse(V::set(a.inverse)),
          zero_point(V::set(static_cast<float>(a.zero_point))),
          most(V::set(32767.0f)) {}

    T largest_of(const T* x) const {
        T largest = kLeast;
        for (int64_t i = 0; i < a.length; ++i) largest = x[i] > largest ? x[i] : largest;
        return largest;
    }
    // e[i] = first[x[i] - kLeast], one by one: gathers measured slower. Eight bytes at a time keep compilers from
    // making gathers of it.
    void look_up(const T* x, const float* first, float* e) const {
        constexpr uint64_t kFlip = std::is_signed_v<T> ? 0x8080808080808080 : 0;
        int64_t i = 0;
        for (; i + 8 <= a.length; i += 8) {
            uint64_t bytes;
            std::memcpy(&bytes, x + i, sizeof bytes);
            bytes ^= kFlip;
            for (int k = 0; k < 8; ++k) e[i + k] = first[bytes >> 8 * k & 0xFF];
        }
        for (; i < a.length; ++i) e[i] = first[x[i] - kLeast];
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
    F one(const float* e, F factor) const {
        return V::min(V::fma(V::mul(V::load(e), factor), inverse, zero_point), most);
    }
    void block(const float* e, T* y, F factor) const {
        V::store4_clamped(y, one(e, factor), one(e + V::W, factor), one(e + 2 * V::W, factor),
                          one(e + 3 * V::W, factor), 0, a.lo, a.hi);
    }
    void run(int64_t begin, int64_t end, float* e) const {
        for (int64_t i = 0; i < SoftmaxArgs::kRoom; ++i) e[a.length + i] = 0.0f;
        for (int64_t row = begin; row < end; ++row) {
            const T* x = reinterpret_cast<const T*>(a.x) + row * a.length;
            T* y = reinterpret_cast<T*>(a.y) + row * a.length;
            const T largest = largest_of(x);
            look_up(x, a.table + 255 - (largest - kLeast), e);
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
