// Depthwise convolutions on the activations as they are stored: bytes, line by line, with nothing prepared.
//
//   acc[h][w][c] = sum over kernel rows i and columns j of x[h stride_h + i][w stride - left + j][c] * w[i][j][c]
//   y[h][w][c] = epilogue(acc[h][w][c], c)
//
// x is the line `lines[...]`, with the zero point left and right of it. Weights are s8 with their zero point
// subtracted; x is u8, or s8 plus 128, and its zero point is in the bias.
#pragma once

#include "kernels/gemm/gemm.h"

#include <cstddef>

namespace zeropoint {

// Channels of a unit of work.
constexpr int64_t kInPlaceUnit = 64;

struct InPlaceShape {
    int64_t rows = 0, columns = 0;     // of the kernel
    int64_t stride_h = 1, stride = 1;  // from line to line, and along a line
};

struct InPlaceArgs {
    InPlaceShape shape;
    const uint8_t* const* lines = nullptr;  // (out_lines - 1) stride_h + rows of them
    int64_t width = 0, left = 0;            // pixels of a line, and zero points left of them
    int64_t channels = 0;                   // of a pixel of x and y
    Activation activation;
    const uint8_t* w = nullptr;  // packed
    void* y = nullptr;
    int64_t out = 0;  // where the first line of the output is, in elements
    int64_t out_lines = 0, out_width = 0;
    Epilogue epilogue;
};

struct InPlaceKernel {
    // Whether there is one for this shape.
    bool (*takes)(const InPlaceShape& shape);
    // Weights are (channels, rows, columns).
    size_t (*packed_bytes)(const InPlaceShape& shape, int64_t channels);
    void (*pack)(const InPlaceShape& shape, int64_t channels, const int8_t* w, uint8_t* to);
    // The channels of units [begin, end), for all lines.
    void (*multiply)(const InPlaceArgs& args, int64_t begin, int64_t end);
};

}  // namespace zeropoint
