// float_function: a function of each float32. kernels/activations.h has exp and tanh; the others are
//
//   sigmoid    of activations.h, 0 where its argument is below -87, also in
//   silu       y = x * sigmoid(x)
//   gelu_tanh  y = x * sigmoid(v),   v = x * fma(x * x, c1, c0)    c0 = sqrt(8 / pi), c1 = c0 * 0.044715
//   gelu       y = fma(-a, phi, max(x, 0))                         a = min(|x|, 12.5); phi = P(N(0, 1) > a)
//              phi = exp(a * -0.5 * a) * (g(t) * t),   t = 1 / fma(a, 0.2316, 1)
//              g(t) = fma(odd, t, even), both polynomials of t * t by Horner's rule with fma; x * 0 below -12.5
//
// NaN stays NaN.
#pragma once

#include "kernels/types.h"

namespace zeropoint {

enum class FloatFunction : int { gelu = 0, gelu_tanh = 1, tanh = 2, sigmoid = 3, silu = 4 };

struct FloatFunctionArgs {
    FloatFunction function = FloatFunction::gelu;
    const float* x = nullptr;
    float* y = nullptr;  // may be x
};

// The elements [begin, end).
using FloatFunctionFn = void (*)(const FloatFunctionArgs&, int64_t begin, int64_t end);

namespace {  // internal linkage: this header is compiled once per instruction set

constexpr float kTailRate = 0.2316f, kTailEnd = 12.5f;
// P(N(0, 1) > a) exp(a^2 / 2) / t for a in 0 .. 12.5, within 1.3e-7 of it.
constexpr float kTail[8] = {0.09252414107322693f, 0.09014403820037842f,  0.10413189232349396f, 0.008912631310522556f,
                            0.23358014225959778f, -0.21036653220653534f, 0.25260260701179504f, -0.07152886688709259f};
constexpr float kGeluFirst = 1.5957691216057308f, kGeluThird = 0.07135481282636857f;

}  // namespace
}  // namespace zeropoint
