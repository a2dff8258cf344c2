// Observation and fake quantization in one call, as training with quantization does at every step.
#pragma once

#include "kernels/types.h"

#include <cstdint>

namespace zeropoint {

// Widens the ranges [min, max] of the grid's parts by those of x, or, if `average`, moves them towards those:
// min += rate * (min of x - min). A range of (+inf, -inf) is empty: the first one seen is taken as it is. NaN in x
// makes a part's range NaN.
void observe_range(const float* x, const Grid& grid, int64_t parts, float* min, float* max, bool average, float rate);

// What is kept from step to step, one value for each part of the grid, in place.
struct MovingAverage {
    int64_t parts = 0;
    float* min = nullptr;
    float* max = nullptr;
    float* scale = nullptr;
    int32_t* zero_point = nullptr;
    float rate = 0;  // min += rate * (min of x - min); the first range is taken as it is
};

struct FakeQuantization {
    float* y = nullptr;
    uint8_t* mask = nullptr;
    int64_t qmin = 0, qmax = 0;
    bool symmetric = false;
};

// `average` moves towards the range of x if `observe`; then scale and zero point follow from it, and x is
// fake-quantized to y and mask, unless y is null. One part means per tensor, which rounds as PyTorch's per-tensor fake
// quantization does unless `per_channel` says otherwise. A part that was never observed has the range [0, 0], as in
// PyTorch; returns false if there was one.
// Throws std::invalid_argument for a range that is NaN or infinite; then nothing has changed.
bool observe_and_fake_quantize(const float* x, const Grid& grid, bool per_channel, bool observe,
                               const MovingAverage& average, const FakeQuantization& fake);

}  // namespace zeropoint
