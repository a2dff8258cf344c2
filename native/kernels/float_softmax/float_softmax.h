// float_softmax: the exponentials of float32 as shares of their sum, row by row.
//
//   e[i] = exp(x[i] - max(x))       kernels/activations.h
//   s    = sum(e)                   float32, in the order below
//   y[i] = e[i] * (1 / s)
//
// Lane k of 16 sums e[k], e[k + 16], ... in this order, from 0 on. Then lane k gets lane k + 8, then k + 4, k + 2 and
// k + 1; lane 0 is the sum. A row with NaN or infinity is NaN; so is one of -infinity only, or zero, if `safe`.
#pragma once

#include "kernels/types.h"

namespace zeropoint {

struct FloatSoftmaxArgs {
    static constexpr int kLanes = 16;

    const float* x = nullptr;
    float* y = nullptr;  // may be x
    int64_t length = 0;  // elements in a row, at least one
    bool safe = false;
};

// The rows [begin, end).
using FloatSoftmaxFn = void (*)(const FloatSoftmaxArgs&, int64_t begin, int64_t end);

}  // namespace zeropoint
