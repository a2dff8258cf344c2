// float_layer_norm: rows of float32 with mean 0 and variance 1, then a weight and a bias for each column. Without
// centering, as in RMS norm, m is 0.
//
//   x    = x + other                              float32, if there is another
//   m    = sum(x) / n
//   d    = x - m                                  float32
//   var  = sum(d * d) / n
//   r    = 1 / sqrt(var + eps)                    float64, rounded once
//   y    = fma(d * r, weight, bias)
//
// Both sums go over blocks of 4096 elements. In a block lane k of 32 sums its elements k, k + 32, ... in float32, from
// 0 on (squares by fma), then lane k gets lane k + 16, then k + 8, ... k + 1; the sums of blocks are added in float64.
// m and var are float32, rounded from sum / n in float64.
#pragma once

#include "kernels/types.h"

namespace zeropoint {

struct FloatLayerNormArgs {
    static constexpr int kLanes = 32;
    static constexpr int64_t kBlock = 4096;

    const float* x = nullptr;
    float* y = nullptr;  // may be x
    int64_t length = 0;  // elements in a row, at least one
    const float* weight = nullptr;
    const float* bias = nullptr;
    double eps = 0;
    const float* other = nullptr;  // rows as those of x; may be y
    bool centered = true;
    float* sum = nullptr;  // where x + other goes; none: y, for a time
};

// The rows [begin, end).
using FloatLayerNormFn = void (*)(const FloatLayerNormArgs&, int64_t begin, int64_t end);

}  // namespace zeropoint
