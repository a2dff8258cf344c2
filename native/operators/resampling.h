// Resampling of whole tensors. See kernels/bilinear/bilinear.h for the formula.
#pragma once

#include "kernels/types.h"

#include <array>

namespace zeropoint {

// A dense tensor as images x height x width x channels. Where channels are not innermost in memory, each is an image.
struct ResampleTensor {
    const void* x = nullptr;
    void* y = nullptr;
    IntType type = IntType::u8;
    int64_t images = 0, channels = 1;
    int64_t in_height = 0, in_width = 0, out_height = 0, out_width = 0;
};

struct BilinearRule {
    bool align_corners = false;
    double scale_height = 0, scale_width = 0;  // output / input; 0: of the sizes
    // PyTorch 2.13's compiler fused multiply-adds in its channels-last code only: in the source index, and in both
    // sums, where the product that is not rounded is the second tap's in vector loops and the first tap's in what is
    // left.
    bool fused = false, fuse_first = false;
    int32_t zero_point = 0;
    float qmin = 0, qmax = 255;
};

void bilinear(const ResampleTensor& tensor, const BilinearRule& rule);

// A dense tensor as images x depth x height x width places of `bytes` bytes each: all channels if they are innermost in
// memory, else one element, and each channel is an image.
struct NearestTensor {
    const void* x = nullptr;
    void* y = nullptr;
    int64_t images = 0, bytes = 1;
    std::array<int64_t, 3> in{}, out{};
};

struct NearestRule {
    std::array<double, 3> scale{};  // output / input; 0: of the sizes
    bool exact = false;             // measure from the middle of a place, not from its edge
};

// y[o] = x[floor(o * in / out)], or x[floor((o + 0.5) * in / out)] if exact; the last input if that is beyond it.
void nearest(const NearestTensor& tensor, const NearestRule& rule);

}  // namespace zeropoint
