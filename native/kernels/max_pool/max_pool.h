// max_pool: the largest input of each window.
//   y[o] = max(x[i] for i in window(o));   an empty window gives the type's smallest value
// Padding is outside every window, so it never wins.
#pragma once

#include "kernels/pooling_windows.h"

namespace zeropoint {

struct MaxPoolArgs {
    const void* x = nullptr;
    void* y = nullptr;
    IntType type = IntType::u8;  // u8, s8 or s32
    PoolShape shape;

    // Elements of scratch memory (of the type) that a call needs.
    int64_t scratch() const { return shape.width.in * shape.channels; }
};

// The output rows [begin, end).
using MaxPoolFn = void (*)(const MaxPoolArgs&, int64_t begin, int64_t end, void* scratch);

}  // namespace zeropoint
