// binary: sums and products of two 8-bit tensors with parameters of their own, requantized.
//   add        v = fma(a, a_scale, a_offset) + fma(b, b_scale, b_offset)
//   multiply   v = (a - a_offset) * (b - b_offset)
//   y = rne(clamp(v * scale, low, high)) + zero_point
// in float32. low and high are the bounds of y less its zero point, whole numbers, so that clamping before rounding is
// the same as after it; a ReLU makes low 0. A NaN, which takes scales beyond float32, gives high.
//
// fixed_add is the sum as QNNPACK has it, in int32, halves rounded away from zero:
//   v = (a - a_offset) * a_factor + (b - b_offset) * b_factor
//   y = clamp((v >> shift) + (remainder above half), low, high) + zero_point
#pragma once

#include "kernels/types.h"

namespace zeropoint {

enum class BinaryOperation : int { add = 0, multiply = 1, fixed_add = 2 };

// a, b and y have the same 8-bit type.
struct BinaryArgs {
    BinaryOperation operation = BinaryOperation::add;
    IntType type = IntType::u8;
    const void* a = nullptr;
    const void* b = nullptr;
    bool b_is_one = false;  // b is one value for all elements
    void* y = nullptr;      // may be a or b
    // add: the scales, and minus their products with the zero points. Others: no scales, and the zero points.
    float a_scale = 1, a_offset = 0, b_scale = 1, b_offset = 0;
    // add: 1 / (scale of y). multiply: a_scale * b_scale / (scale of y).
    float scale = 1;
    float low = 0, high = 0;
    int32_t zero_point = 0;
    // fixed_add: multiples of 2^-shift, below 2^22, so that v fits; shift is 14 to 31.
    int32_t a_factor = 0, b_factor = 0, shift = 0;
};

using BinaryFn = void (*)(const BinaryArgs&, int64_t begin, int64_t end);

}  // namespace zeropoint
