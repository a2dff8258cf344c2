// Where Winograd's algorithm computes a convolution, and how its work is cut. See kernels/gemm/winograd.h for the
// algorithm, and operators/convolution.h for strips.
#pragma once

#include "kernels/gemm/winograd.h"
#include "operators/conv_shape.h"
#include "operators/matmul.h"

namespace zeropoint {

// Whether it computes convolutions of this shape; with a kernel that takes as many channels.
bool has_winograd(const ConvShape& shape);
bool has_winograd(const ConvShape& shape, const WinogradKernel& kernel);
// Whether it computes them exactly with these weights, whatever the input is.
bool winograd_is_exact(const WeightTensor& w, const ConvShape& shape);

// Outputs of a convolution: so many planes of lines x width pixels.
struct WinogradOutput {
    int64_t planes, lines, width;

    int64_t tile_lines() const { return (lines + kWinogradTile - 1) / kWinogradTile; }
    int64_t tile_columns() const { return (width + kWinogradTile - 1) / kWinogradTile; }
};

// Blocks of tiles times chunks of panels.
struct WinogradCut {
    int64_t lines = 0;     // of tiles, in a strip; 0: the plain kernel is faster
    int64_t together = 1;  // strips in a block
    int64_t panels_per_chunk = 1;
};

// The cut with which the last of `threads` threads ends first, or none if the plain kernel ends earlier.
WinogradCut winograd_cut(const WinogradCosts& costs, const ConvShape& shape, const WinogradOutput& out, int threads);

// The memory that a block of some tiles takes, in bytes.
struct WinogradSizes {
    int64_t inputs, weights, sums, rows;

    WinogradSizes(int64_t tiles, int64_t channels)
        : inputs(kWinogradProducts * WinogradArgs::inputs_stride(tiles, channels) * 2),
          weights(kWinogradProducts * WinogradArgs::weights_stride(channels) * 2),
          sums(kWinogradProducts * WinogradArgs::kSumsStride * 4),
          rows(tiles * 2 * kTilePixels * 8) {}

    int64_t all() const { return inputs + weights + sums + rows; }
};
// The most memory that a thread takes for it, in bytes.
double winograd_scratch(const ConvShape& shape, int64_t images, const Size3& out);

}  // namespace zeropoint
