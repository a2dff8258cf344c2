// float_gemm: rows of float32 times packed float32 weights, in one fixed order:
//
//   acc = what y has, or bias[n], or 0;  for k = 0, 1, ...:  acc = fma(x[m][k], w[n][k], acc);  y[m][n] = acc
//
// Each output has one sum of its own, so every instruction set and every cut of the work, along k too, gives the same
// bytes.
#pragma once

#include "kernels/types.h"

namespace zeropoint {

// Columns that stand side by side in a panel.
constexpr int64_t kFloatPanel = 16;

struct FloatGemmArgs {
    const float* x = nullptr;  // `rows` rows of `depth`
    int64_t rows = 0, depth = 0, x_stride = 0;
    const float* panels = nullptr;  // [k][column of the panel], a panel every `panel_stride` elements
    int64_t panel_stride = 0;
    const float* bias = nullptr;  // one for each column of the panels, or none
    bool resume = false;          // sums begin with what y has, not with the bias
    float* y = nullptr;           // `rows` rows, in each one place for every column of the panels
    int64_t y_stride = 0;
};

// The columns of panels [begin, end), for all rows.
using FloatGemmFn = void (*)(const FloatGemmArgs&, int64_t begin, int64_t end);

}  // namespace zeropoint
