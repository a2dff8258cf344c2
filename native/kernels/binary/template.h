// binary for any vector type V of simd/. Blocks of four vectors, so that results leave as one store.
#pragma once

#include "kernels/binary/binary.h"

#include <cmath>

namespace zeropoint {
namespace {

// Whether every v * scale is far inside int32, as with all but absurd scales: integers then do the clamping, for less.
inline bool is_tame(const BinaryArgs& p) {
    constexpr float kMost = 255;
    float largest;
    if (p.operation == BinaryOperation::add)
        largest =
            kMost * std::fabs(p.a_scale) + std::fabs(p.a_offset) + kMost * std::fabs(p.b_scale) + std::fabs(p.b_offset);
    else
        largest = (kMost + std::fabs(p.a_offset)) * (kMost + std::fabs(p.b_offset));
    return largest * std::fabs(p.scale) < 1e9f;
}

template <class V, BinaryOperation O, bool kTame, bool kOne, class T>
struct BinaryBlock {
    using F = typename V::F;
    using I = typename V::I;
    F a_scale, a_offset, b_scale, b_offset, scale, low, high;
    int32_t zero_point;
    T least;
    F b_term;  // of b, where it is one value

    explicit BinaryBlock(const BinaryArgs& p)
        : a_scale(V::set(p.a_scale)),
          a_offset(V::set(p.a_offset)),
          b_scale(V::set(p.b_scale)),
          b_offset(V::set(p.b_offset)),
          scale(V::set(p.scale)),
          low(V::set(p.low)),
          high(V::set(p.high)),
          zero_point(p.zero_point),
          least(static_cast<T>(static_cast<int32_t>(p.low) + p.zero_point)),
          b_term(term(V::set(kOne ? static_cast<float>(*static_cast<const T*>(p.b)) : 0.0f), b_scale, b_offset)) {}

    static F term(F q, F scale, F offset) {
        if constexpr (O == BinaryOperation::add) return V::fma(q, scale, offset);
        return V::sub(q, offset);
    }
    I one(const T* a, const T* b) const {
        const F x = term(V::to_float(V::load_int(a)), a_scale, a_offset);
        F y = b_term;
        if constexpr (!kOne) y = term(V::to_float(V::load_int(b)), b_scale, b_offset);
        F v;
        if constexpr (O == BinaryOperation::add)
            v = V::add(x, y);
        else
            v = V::mul(x, y);
        v = V::mul(v, scale);
        if constexpr (!kTame) v = V::clamp_nan_high(v, low, high);
        return V::round_to_int(v);
    }
    void operator()(const T* a, const T* b, T* y) const {
        constexpr int W = V::W;
        V::store4_offset(y, one(a, b), one(a + W, b + W), one(a + 2 * W, b + 2 * W), one(a + 3 * W, b + 3 * W),
                         zero_point, least);
    }
};

template <class V, BinaryOperation O, bool kTame, bool kOne, class T>
void binary_typed(const BinaryArgs& p, int64_t begin, int64_t end) {
    constexpr int64_t kBlock = 4 * V::W;
    const BinaryBlock<V, O, kTame, kOne, T> block(p);
    const T* a = static_cast<const T*>(p.a);
    const T* b = static_cast<const T*>(p.b);
    T* y = static_cast<T*>(p.y);
    int64_t i = begin;
    // Where b is one value its address is never read.
    for (; i + kBlock <= end; i += kBlock) block(a + i, kOne ? a + i : b + i, y + i);
    if (i == end) return;
    T a_tail[kBlock] = {}, b_tail[kBlock] = {}, y_tail[kBlock];
    const int64_t left = end - i;
    for (int64_t k = 0; k < left; ++k) {
        a_tail[k] = a[i + k];
        if constexpr (!kOne) b_tail[k] = b[i + k];
    }
    block(a_tail, b_tail, y_tail);
    for (int64_t k = 0; k < left; ++k) y[i + k] = y_tail[k];
}

template <class V, BinaryOperation O, class T>
void binary_of(const BinaryArgs& p, int64_t begin, int64_t end) {
    if (!is_tame(p))
        return p.b_is_one ? binary_typed<V, O, false, true, T>(p, begin, end)
                          : binary_typed<V, O, false, false, T>(p, begin, end);
    return p.b_is_one ? binary_typed<V, O, true, true, T>(p, begin, end)
                      : binary_typed<V, O, true, false, T>(p, begin, end);
}

// Of integers alone: compilers vectorize it.
template <class T>
void fixed_sum(const BinaryArgs& p, int64_t begin, int64_t end) {
    const int32_t a_zero = static_cast<int32_t>(p.a_offset), b_zero = static_cast<int32_t>(p.b_offset);
    const int32_t a_factor = p.a_factor, b_factor = p.b_factor, shift = p.shift, zero_point = p.zero_point;
    const int32_t low = static_cast<int32_t>(p.low), high = static_cast<int32_t>(p.high);
    const int32_t mask = static_cast<int32_t>((uint32_t{1} << shift) - 1), half = mask >> 1;
    const T *a = static_cast<const T*>(p.a), *b = static_cast<const T*>(p.b);
    T* y = static_cast<T*>(p.y);
    const bool b_is_one = p.b_is_one;
    const int32_t one = b_is_one ? (static_cast<int32_t>(*b) - b_zero) * b_factor : 0;
    for (int64_t i = begin; i < end; ++i) {
        const int32_t term = b_is_one ? one : (static_cast<int32_t>(b[i]) - b_zero) * b_factor;
        const int32_t v = (static_cast<int32_t>(a[i]) - a_zero) * a_factor + term;
        const int32_t remainder = (v & mask) - static_cast<int32_t>(v < 0);
        int32_t rounded = (v >> shift) + static_cast<int32_t>(remainder > half);
        rounded = rounded < high ? rounded : high;
        rounded = rounded < low ? low : rounded;
        y[i] = static_cast<T>(rounded + zero_point);
    }
}

template <class V, class T>
void binary_on(const BinaryArgs& p, int64_t begin, int64_t end) {
    if (p.operation == BinaryOperation::fixed_add) return fixed_sum<T>(p, begin, end);
    if (p.operation == BinaryOperation::add) return binary_of<V, BinaryOperation::add, T>(p, begin, end);
    return binary_of<V, BinaryOperation::multiply, T>(p, begin, end);
}

template <class V>
void binary_with(const BinaryArgs& p, int64_t begin, int64_t end) {
    if (p.type == IntType::u8) return binary_on<V, uint8_t>(p, begin, end);
    return binary_on<V, int8_t>(p, begin, end);
}

}  // namespace
}  // namespace zeropoint
