// Pooling of whole tensors. See kernels/max_pool/max_pool.h and kernels/average_pool/average_pool.h for the formulas.
#pragma once

#include "kernels/average_pool/average_pool.h"
#include "kernels/types.h"

#include <array>

namespace zeropoint {

// A dense tensor as images x depth x height x width x channels (missing axes are 1). Where channels are not innermost
// in memory, each is an image of its own, with one channel.
struct PoolTensor {
    const void* x = nullptr;
    void* y = nullptr;
    IntType type = IntType::u8;
    int64_t images = 0, channels = 1;
    std::array<int64_t, 3> in{}, out{};
};

struct PoolWindows {
    std::array<int64_t, 3> kernel{}, stride{}, padding{}, dilation{};
};

struct AverageRule {
    Averaging averaging = Averaging::joined;
    bool count_include_pad = true;
    int64_t divisor = 0;  // 0: the size of the window
    int32_t zero_point = 0;
    float qmin = 0, qmax = 255;
    float scale = 1;
};

void max_pool(const PoolTensor& tensor, const PoolWindows& windows);
void average_pool(const PoolTensor& tensor, const PoolWindows& windows, const AverageRule& rule);
// Windows that divide the input evenly among the outputs.
void adaptive_average_pool(const PoolTensor& tensor, const AverageRule& rule);

}  // namespace zeropoint
