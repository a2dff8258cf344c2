// minmax: the smallest and largest element of every parameter's part of a grid, in one pass.
#pragma once

#include "kernels/types.h"

namespace zeropoint {

// min and max hold one value per grid parameter and are widened, so start them at +inf and -inf. NaN anywhere in a part
// makes both of its results NaN, as torch.aminmax does. The sign of a zero is not defined.
struct MinMaxArgs {
    const float* x = nullptr;
    Grid grid;
    float* min = nullptr;
    float* max = nullptr;
};

using MinMaxFn = void (*)(const MinMaxArgs&, int64_t begin, int64_t end);

}  // namespace zeropoint
