// float_gemm: half_gemm with float32 in its panels, and no bias.
//
//   acc = 0;  for k = 0, 1, ...:  acc = fma(x[m][k], w[n][k], acc);  y[m][n] = acc
#pragma once

#include "kernels/half_gemm/half_gemm.h"

namespace zeropoint {

// Columns that stand side by side in a panel.
constexpr int64_t kFloatPanel = kHalfPanel;

using FloatGemmArgs = PanelGemmArgs<float>;

// The columns of panels [begin, end), for all rows.
using FloatGemmFn = void (*)(const FloatGemmArgs&, int64_t begin, int64_t end);

}  // namespace zeropoint
