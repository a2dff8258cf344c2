// float_function for any vector type V of simd/.
#pragma once

#include "kernels/activations.h"
#include "kernels/float_function/float_function.h"

namespace zeropoint {
namespace {

template <class V, FloatFunction kFunction>
__attribute__((always_inline)) inline typename V::F function_of(typename V::F x) {
    using F = typename V::F;
    using A = Activations<V>;
    const F zero = V::set(0.0f), one = V::set(1.0f);
    const auto vanishing = [&](F v) { return V::select(V::less(v, V::set(-kSigmoidBound)), zero, A::sigmoid(v)); };
    if constexpr (kFunction == FloatFunction::tanh) {
        return A::tanh(x);
    } else if constexpr (kFunction == FloatFunction::sigmoid) {
        return vanishing(x);
    } else if constexpr (kFunction == FloatFunction::silu) {
        return V::mul(x, vanishing(x));
    } else if constexpr (kFunction == FloatFunction::gelu_tanh) {
        const F v = V::mul(x, V::fma(V::mul(x, x), V::set(kGeluThird), V::set(kGeluFirst)));
        return V::mul(x, vanishing(v));
    } else {
        const F size = V::min(V::set(kTailEnd), V::max(x, V::mul(x, V::set(-1.0f))));
        const F t = V::div(one, V::fma(size, V::set(kTailRate), one)), square = V::mul(t, t);
        F even = V::set(kTail[6]), odd = V::set(kTail[7]);
        for (int i = 4; i >= 0; i -= 2) {
            even = V::fma(even, square, V::set(kTail[i]));
            odd = V::fma(odd, square, V::set(kTail[i + 1]));
        }
        const F density = A::exp_inside(V::mul(V::mul(size, V::set(-0.5f)), size));
        const F tail = V::mul(density, V::mul(V::fma(odd, t, even), t));
        const F y = V::fma(V::mul(size, V::set(-1.0f)), tail, V::max(zero, x));
        return V::select(V::less(x, V::set(-kTailEnd)), V::mul(x, zero), y);
    }
}

template <class V, FloatFunction kFunction>
void each_function(const FloatFunctionArgs& a, int64_t begin, int64_t end) {
    int64_t i = begin;
    for (; i + V::W <= end; i += V::W) V::store(a.y + i, function_of<V, kFunction>(V::load(a.x + i)));
    if (i == end) return;
    float last[V::W] = {};
    for (int64_t k = i; k < end; ++k) last[k - i] = a.x[k];
    V::store(last, function_of<V, kFunction>(V::load(last)));
    for (int64_t k = i; k < end; ++k) a.y[k] = last[k - i];
}

template <class V>
void float_function_with(const FloatFunctionArgs& a, int64_t begin, int64_t end) {
    switch (a.function) {
        case FloatFunction::gelu: return each_function<V, FloatFunction::gelu>(a, begin, end);
        case FloatFunction::gelu_tanh: return each_function<V, FloatFunction::gelu_tanh>(a, begin, end);
        case FloatFunction::tanh: return each_function<V, FloatFunction::tanh>(a, begin, end);
        case FloatFunction::sigmoid: return each_function<V, FloatFunction::sigmoid>(a, begin, end);
        case FloatFunction::silu: return each_function<V, FloatFunction::silu>(a, begin, end);
    }
}

}  // namespace
}  // namespace zeropoint
