// normalize: a linear function of 8-bit values, its parameters by row or by element.
//
//   t = (q - center) * factor                                          float32
//   v = fma(t, weight, bias)                                           float32, rounded once
//   y = clamp(rne(v * inverse) + zero_point, lo, hi)                   split
//   y = clamp(rne(v * inverse + zero_point), lo, hi)                   joined
//
// NaN becomes `hi`.
#pragma once

#include "kernels/types.h"

namespace zeropoint {

// What belongs to a row as a whole; the rest has a value for each element of the row.
enum class ByRow : int {
    all = 0,     // center, weight, bias; no factor
    center = 1,  // center, factor (1 if there is none); weight and bias are the same for all rows
    none = 2,    // center, weight, bias by element, in sets that neighbouring rows share; no factor
};

struct NormalizeArgs {
    const void* x = nullptr;
    void* y = nullptr;           // may be x
    IntType type = IntType::u8;  // u8 or s8
    int64_t length = 0;          // elements in a row
    ByRow by_row = ByRow::all;
    int64_t step = 1;      // all, center: row r has the parameters at r * step
    int64_t set_rows = 1;  // none: row r has set r / set_rows
    const float *center = nullptr, *factor = nullptr, *weight = nullptr, *bias = nullptr;
    float inverse = 1;  // of the output's scale
    int32_t zero_point = 0;
    bool joined = false;
    bool bounded = false;  // it is known that |v * inverse| < 2^31, and no NaN
    int32_t lo = 0, hi = 255;
};

// The rows [begin, end).
using NormalizeFn = void (*)(const NormalizeArgs&, int64_t begin, int64_t end);

}  // namespace zeropoint
