// Interleaving: what pixel_shuffle and channel_shuffle do to memory.
#pragma once

#include <array>
#include <cstdint>

namespace zeropoint {

// The rows of a three-dimensional arrangement, one after the other in y, each made of `groups` stretches of x:
//   y[row][k * groups + g] = x[row_offset + g * group_stride + k]     k < length, g < groups
// row_offset follows counts and strides, the last of them fastest.
struct Interleave {
    const void* x = nullptr;
    void* y = nullptr;
    int64_t bytes = 1;  // of an element: 1 or 4
    std::array<int64_t, 3> counts{}, strides{};
    int64_t groups = 1, group_stride = 0, length = 0;
};

void interleave(const Interleave& arguments);

}  // namespace zeropoint
