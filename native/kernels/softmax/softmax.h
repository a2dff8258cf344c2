// softmax: the exponentials of 8-bit values as shares of their sum, row by row.
//
//   e[i] = table[255 - (max(q) - q[i])]    table[255 - d] = exp(-d * scale), float32
//   s    = sum(e)                          float32, in the order below
//   y    = clamp(rne(fma(e * (1 / s), inverse, zero_point)), lo, hi)
//
// Lane k of 16 sums e[k], e[k + 16], ... in this order, from 0 on. Then lane k gets lane k + 8, then k + 4, k + 2 and
// k + 1; lane 0 is the sum.
#pragma once

#include "kernels/types.h"

namespace zeropoint {

struct SoftmaxArgs {
    static constexpr int kLanes = 16;
    static constexpr int64_t kRoom = 64;  // zeros after the exponentials of a row

    const uint8_t* x = nullptr;
    uint8_t* y = nullptr;
    IntType type = IntType::u8;    // u8 or s8
    int64_t length = 0;            // elements in a row, at least one
    const float* table = nullptr;  // 256
    float inverse = 1;             // of the output's scale
    int32_t zero_point = 0;
    int32_t lo = 0, hi = 255;

    // float elements of scratch memory that a call needs.
    int64_t scratch() const { return length + kRoom; }
};

// The rows [begin, end).
using SoftmaxFn = void (*)(const SoftmaxArgs&, int64_t begin, int64_t end, float* scratch);

}  // namespace zeropoint
