// Finding ranges: the extremes of a tensor's parts, and the range that loses least when few bits are left.
#pragma once

#include "kernels/types.h"

namespace zeropoint {

// Smallest and largest element of each of `parts` parts of the grid (NaN if there is one in it), in one pass.
// A zero comes out as +0. min and max are written, `parts` values each; empty parts give +inf and -inf.
void minmax(const float* x, const Grid& grid, int64_t parts, float* min, float* max);

struct Range {
    float low = 0, high = 0;
};

// Greedy search for the clipping range that minimizes the l2 error of quantizing to `bits` bits with a float16 scale
// and offset: from [min, max], again and again cut one step of (max - min) / bins off the side where it hurts less,
// until a part `ratio` of the range is gone; the best local optimum on the way wins.
Range least_loss_range(const float* x, int64_t n, int bins, float ratio, int bits);

}  // namespace zeropoint
