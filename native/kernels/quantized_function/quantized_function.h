// quantized_function: a function of float32 and the rounding of its results, rows of float32 to rows of bytes:
//
//   y[y_rows[i] + c] = clamp(rne(f(x[i * columns + c]) * inv) + zero_point, lo, hi)      f as in float_function
//
// with every operation rounded: the bytes of float_function and then quantize (RoundingVariant::split), which takes NaN
// to what quantize makes of it.
#pragma once

#include "kernels/float_function/float_function.h"

namespace zeropoint {

// f(x) * inv for one f and one inv as cubics over equal parts, for results that are rounded to integers anyway: where a
// value is further from the middle between two of them than its error, it rounds as f(x) * inv does.
//   place = fma(min(x, last), rate, kMagic) - kMagic;   r = fma(x, rate, -place);   the cubic of r has the terms of
//   place modulo kParts; fma is nearly_fused (simd/fused.h)
// operators/function_curve.h makes them.
struct FunctionCurve {
    static constexpr int kParts = 32, kTerms = 4;
    static constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23: what is added to it is rounded, and in its lowest bits
    float low = 0, high = 0;                      // x below or above these gives the byte of the nearest of them
    float last = 0;                               // the middle of the last part
    float rate = 1;                               // parts in a unit of x
    float certain = 0;                            // a value at most so far from an integer is rounded to it
    alignas(64) float term[kTerms][kParts] = {};  // term[k] of r^k
};

struct QuantizedFunctionArgs {
    FloatFunction function = FloatFunction::gelu;
    const float* x = nullptr;
    int64_t columns = 0;
    IntType type = IntType::u8;  // u8 or s8
    float inv = 1;
    int32_t zero_point = 0, lo = 0, hi = 255;
    uint8_t* y = nullptr;
    const int64_t* y_rows = nullptr;
    // If given, all x are within its bounds, it is that of function and inv, and kernels may make use of it.
    const FunctionCurve* curve = nullptr;
};

// The rows [begin, end).
using QuantizedFunctionFn = void (*)(const QuantizedFunctionArgs&, int64_t begin, int64_t end);

}  // namespace zeropoint
