// quantization_loss: how far uniform quantization to a few bits moves the values, for two candidate ranges at once.
//   q = clamp(rne((x - low) * inv), 0, qmax),   loss = sum((x - (q * scale + low))^2)
// The sum runs in eight float32 lanes (element i in lane i mod 8), the lanes are added in order, then the last n mod 8
// elements: this order is part of the contract, because the greedy search that calls it compares nearly equal losses.
#pragma once

#include "kernels/types.h"

namespace zeropoint {

struct LossCandidate {
    float low = 0, scale = 1, inv = 1;
};

struct QuantizationLossArgs {
    const float* x = nullptr;
    int64_t n = 0;
    LossCandidate candidate[2];
    float qmax = 0;
    float loss[2] = {0, 0};  // result
};

using QuantizationLossFn = void (*)(QuantizationLossArgs&);

}  // namespace zeropoint
