// quantize_range: values of a range that begins at `low`, to bytes.   y[i] = clamp(rne((x[i] - low) * inv), 0, qmax)
// In float32; NaN gives 0.
#pragma once

#include "kernels/types.h"

namespace zeropoint {

struct QuantizeRangeArgs {
    const float* x = nullptr;
    uint8_t* y = nullptr;
    float low = 0, inv = 1;
    float qmax = 255;
};

using QuantizeRangeFn = void (*)(const QuantizeRangeArgs&, int64_t begin, int64_t end);

}  // namespace zeropoint
