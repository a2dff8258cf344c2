// mask_gradient: the straight-through gradient of fake quantization.   dx = dy * mask
// A product, not a choice: an infinite or NaN dy outside the range gives NaN, as PyTorch's does.
#pragma once

#include "kernels/types.h"

namespace zeropoint {

struct MaskGradientArgs {
    const float* dy = nullptr;
    const uint8_t* mask = nullptr;  // 0 or 1
    float* dx = nullptr;
};

using MaskGradientFn = void (*)(const MaskGradientArgs&, int64_t begin, int64_t end);

}  // namespace zeropoint
