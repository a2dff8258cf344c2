// float_depthwise: neighbouring outputs of a convolution in which every channel is a group of its own, channels
// innermost in memory:
//
//   acc = bias[c], or 0;  for t = 0, 1, ...:  acc = fma(x[output * x_step + x_taps[t] + c], w[w_taps[t] + c], acc)
//   y[output * y_step + c] = acc
#pragma once

#include "kernels/types.h"

namespace zeropoint {

struct FloatDepthwiseArgs {
    const float* x = nullptr;
    int64_t x_step = 0;
    const float* w = nullptr;
    const int64_t* x_taps = nullptr;  // `taps` each
    const int64_t* w_taps = nullptr;
    int64_t taps = 0, channels = 0;
    const float* bias = nullptr;
    float* y = nullptr;
    int64_t y_step = 0;
};

// The outputs [begin, end).
using FloatDepthwiseFn = void (*)(const FloatDepthwiseArgs&, int64_t begin, int64_t end);

}  // namespace zeropoint
