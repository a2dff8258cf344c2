// quantized_function for any vector type V of simd/. Blocks of four vectors, so that results leave as one store.
#pragma once

#include "kernels/float_function/template.h"
#include "kernels/quantize/template.h"
#include "kernels/quantized_function/quantized_function.h"

#include <type_traits>

namespace zeropoint {
namespace {

// Blocks of 4 W bytes, each rounded by itself.
template <class V, FloatFunction kFunction, class T>
class ExactBlocks {
public:
    static constexpr int64_t kBlock = 4 * V::W;

    explicit ExactBlocks(const QuantizedFunctionArgs& a)
        : inv_(V::set(a.inv)),
          zero_point_(V::set(static_cast<float>(a.zero_point))),
          range_(quantize_args(a)) {}

    void operator()(const float* x, T* y) const { V::store4(y, at(x, 0), at(x, 1), at(x, 2), at(x, 3)); }

private:
    static QuantizeArgs quantize_args(const QuantizedFunctionArgs& a) {
        QuantizeArgs q;
        q.qmin = a.lo;
        q.qmax = a.hi;
        return q;
    }
    typename V::I at(const float* x, int64_t i) const {
        const typename V::F v = function_of<V, kFunction>(V::load(x + i * V::W));
        return quantize_vector<V, RoundingVariant::split, T>(v, inv_, zero_point_, range_);
    }

    typename V::F inv_, zero_point_;
    QuantizeRange<V, float> range_;
};

template <class T, class Blocks>
inline void each_block(const QuantizedFunctionArgs& a, int64_t begin, int64_t end, const Blocks& blocks) {
    constexpr int64_t kBlock = Blocks::kBlock;
    for (int64_t i = begin; i < end; ++i) {
        const float* x = a.x + i * a.columns;
        T* y = reinterpret_cast<T*>(a.y + a.y_rows[i]);
        int64_t c = 0;
        for (; c + kBlock <= a.columns; c += kBlock) blocks(x + c, y + c);
        if (c == a.columns) continue;
        float last[kBlock] = {};
        T bytes[kBlock];
        for (int64_t k = c; k < a.columns; ++k) last[k - c] = x[k];
        blocks(last, bytes);
        for (int64_t k = c; k < a.columns; ++k) y[k] = bytes[k - c];
    }
}

// Visit<function, type of the bytes>::run(a, begin, end)
template <template <FloatFunction, class> class Visit>
inline void each_type(const QuantizedFunctionArgs& a, int64_t begin, int64_t end) {
    const auto typed = [&](auto function) {
        constexpr FloatFunction kFunction = decltype(function)::value;
        if (a.type == IntType::u8) return Visit<kFunction, uint8_t>::run(a, begin, end);
        return Visit<kFunction, int8_t>::run(a, begin, end);
    };
    using F = FloatFunction;
    switch (a.function) {
        case F::gelu: return typed(std::integral_constant<F, F::gelu>());
        case F::gelu_tanh: return typed(std::integral_constant<F, F::gelu_tanh>());
        case F::tanh: return typed(std::integral_constant<F, F::tanh>());
        case F::sigmoid: return typed(std::integral_constant<F, F::sigmoid>());
        case F::silu: return typed(std::integral_constant<F, F::silu>());
    }
}

template <class V>
struct Exactly {
    template <FloatFunction kFunction, class T>
    struct Visit {
        static void run(const QuantizedFunctionArgs& a, int64_t begin, int64_t end) {
            each_block<T>(a, begin, end, ExactBlocks<V, kFunction, T>(a));
        }
    };
};

}  // namespace
}  // namespace zeropoint
