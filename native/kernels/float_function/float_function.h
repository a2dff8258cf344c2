// float_function: a function of each float32. kernels/activations.h has exp, sigmoid and tanh; the others are
//
//   silu       y = x * sigmoid(x)                                  the factor is 0 where its argument is below -87
//   gelu_tanh  y = x * sigmoid(v),   v = x * fma(x * x, c1, c0)    c0 = sqrt(8 / pi), c1 = c0 * 0.044715
//   gelu       y = x * (x < 0 ? phi : 1 - phi)                     phi = P(N(0, 1) > |x|)
//              phi = exp(|x| * -0.5 * |x|) * (g(t) * t),   t = 1 / fma(|x|, 0.27, 1), g by Horner's rule with fma
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

constexpr float kTailRate = 0.27f;
// P(N(0, 1) > a) exp(a^2 / 2) / t, within 4e-8 of it for a in 0 .. 13.3.
constexpr float kTail[9] = {0.10771922767162323f, 0.107565738260746f,   0.10165729373693466f,
                            0.07261549681425095f, 0.10656528174877167f, -0.06747186928987503f,
                            0.16833114624023438f, -0.1258091926574707f, 0.02882688120007515f};
constexpr float kGeluFirst = 1.5957691216057308f, kGeluThird = 0.07135481282636857f;

}  // namespace
}  // namespace zeropoint
