// Pools and means of float32 tensors, for what a model leaves unquantized. Each result has one sum of its own, in one
// fixed order, so that graphs and programs give the same bytes on every CPU.
#pragma once

#include "operators/pooling.h"

namespace zeropoint {

// As PoolTensor.
struct FloatPoolTensor {
    const float* x = nullptr;
    float* y = nullptr;
    int64_t images = 0, channels = 1;
    std::array<int64_t, 3> in{}, out{};
};

// The largest of each window; NaN where there is one.
void float_max_pool(const FloatPoolTensor& tensor, const PoolWindows& windows);
// The sum of each window in float32, along the width first, over the number of its elements: those of the padding count
// if `count_padding`; `divisor`, if it is not 0, stands for that number.
void float_average_pool(const FloatPoolTensor& tensor, const PoolWindows& windows, bool count_padding, int64_t divisor);
// Windows that divide the input evenly among the outputs.
void float_adaptive_average_pool(const FloatPoolTensor& tensor);

// The sum of each row in float64, over its length, rounded once.
void float_mean(const float* x, float* y, int64_t rows, int64_t length);
// The sum of each row in float64, rounded once.
void float_sum(const float* x, float* y, int64_t rows, int64_t length);
// The product of each row in float64, rounded once.
void float_product(const float* x, float* y, int64_t rows, int64_t length);
// The sum of squares of distances from the mean of each row, both in float64, over its length less `correction`, but at
// least over 0; rounded once.
void float_variance(const float* x, float* y, int64_t rows, int64_t length, double correction);
// The square root of the sum of squares of each row in float64, rounded once.
void float_norm(const float* x, float* y, int64_t rows, int64_t length);

}  // namespace zeropoint
