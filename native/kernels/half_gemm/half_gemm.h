// half_gemm: rows of float32 times weights that are kept in float16, in float32 and in one fixed order:
//
//   acc = 0;  for k = 0, 1, ...:  acc = fma(x[m][k], w[n][k], acc)
//   y[m][n] = acc + bias[n]
//
// Each output has one sum of its own, so every instruction set and every cut of the work gives the same bytes.
#pragma once

#include "kernels/types.h"

namespace zeropoint {

// Output channels that stand side by side in a panel of packed weights.
constexpr int64_t kHalfPanel = 16;

struct HalfGemmArgs {
    const float* x = nullptr;  // `rows` rows of `depth`
    int64_t rows = 0, depth = 0, x_stride = 0;
    const uint16_t* panels = nullptr;  // [panel][k][output channel of the panel]
    const float* bias = nullptr;       // one for each output channel of the panels
    float* y = nullptr;                // `rows` rows, in each one place for every output channel of the panels
    int64_t y_stride = 0;
};

// The output channels of panels [begin, end), for all rows.
using HalfGemmFn = void (*)(const HalfGemmArgs&, int64_t begin, int64_t end);

}  // namespace zeropoint
