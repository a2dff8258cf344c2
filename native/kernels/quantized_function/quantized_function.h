// quantized_function: a function of float32 and the rounding of its results, rows of float32 to rows of bytes:
//
//   y[y_rows[i] + c] = clamp(rne(f(x[i * columns + c]) * inv) + zero_point, lo, hi)      f as in float_function
//
// with every operation rounded: the bytes of float_function and then quantize (Spelling::split), which takes NaN to
// what quantize makes of it.
#pragma once

#include "kernels/float_function/float_function.h"

namespace zeropoint {

struct QuantizedFunctionArgs {
    FloatFunction function = FloatFunction::gelu;
    const float* x = nullptr;
    int64_t columns = 0;
    IntType type = IntType::u8;  // u8 or s8
    float inv = 1;
    int32_t zero_point = 0, lo = 0, hi = 255;
    uint8_t* y = nullptr;
    const int64_t* y_rows = nullptr;
};

// The rows [begin, end).
using QuantizedFunctionFn = void (*)(const QuantizedFunctionArgs&, int64_t begin, int64_t end);

}  // namespace zeropoint
