// quantize: float32 -> integers.   y = clamp(rne(x * inv) + zero_point, qmin, qmax), spelled as `RoundingVariant` says.
#pragma once

#include "kernels/types.h"

namespace zeropoint {

// inv and zero_point hold one value per grid parameter, as float or, if `wide`, as double; the arithmetic is done in
// that type. `wide` knows the variants split and joined only. To s32, saturating means the full range, whatever qmin
// and qmax; wrapping is for 8 bits, where float32 holds both bounds.
// NaN gives qmax when fused, INT_MIN for s32, else 0. Beyond the range the result saturates, except that float32
// arithmetic cannot tell 2^31 - 1 from 2^31 and PyTorch's (and our) split and joined s32 then give INT_MIN.
struct QuantizeArgs {
    const float* x = nullptr;
    void* y = nullptr;
    IntType dst = IntType::u8;
    Grid grid;
    const void* inv = nullptr;
    const void* zero_point = nullptr;
    bool wide = false;
    RoundingVariant variant = RoundingVariant::split;
    double qmin = 0, qmax = 0;
};

// Handles the elements [begin, end) of the grid.
using QuantizeFn = void (*)(const QuantizeArgs&, int64_t begin, int64_t end);

}  // namespace zeropoint
