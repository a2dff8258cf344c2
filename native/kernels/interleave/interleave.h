// interleave: planes of bytes side by side.   y[i * planes + p] = x[p * stride + i]
// An image with its channels one after the other becomes one with the channels of each pixel together.
#pragma once

#include "kernels/types.h"

namespace zeropoint {

struct InterleaveArgs {
    const uint8_t* x = nullptr;
    int64_t stride = 0;  // from plane to plane
    int64_t planes = 1;
    uint8_t* y = nullptr;
};

// Handles the places [begin, end) of every plane.
using InterleaveFn = void (*)(const InterleaveArgs&, int64_t begin, int64_t end);

}  // namespace zeropoint
