// dequantize: integers -> float32.   y = (q - zero_point) * scale
#pragma once

#include "kernels/types.h"

namespace zeropoint {

// The difference is taken in float32 or, if `exact`, without rounding (float64: int32 minus int32 fits) and then
// rounded once to the type of the product. The product is taken in float32 or, if `wide`, in float64 and then rounded
// to float32. Up to 16 bits the two differences agree; the two products do not (0.1f is not 0.1).
//   torch.dequantize per tensor: exact; per channel: wide.  decomposed per tensor: neither; others: exact, and wide if
//   the scales are float64.
struct DequantizeArgs {
    const void* q = nullptr;
    IntType src = IntType::u8;
    float* y = nullptr;
    Grid grid;
    const void* scale = nullptr;       // double if wide, else float
    const void* zero_point = nullptr;  // double if exact, else float
    bool exact = false;
    bool wide = false;
};

using DequantizeFn = void (*)(const DequantizeArgs&, int64_t begin, int64_t end);

}  // namespace zeropoint
