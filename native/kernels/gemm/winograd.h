// 3x3 convolutions of stride 1 with 16 multiplications where there would be 36: Winograd's F(2x2, 3x3), in exact
// integers. A tile of 2 x 2 outputs reads 4 x 4 inputs d; with the kernel g, and * taken element by element:
//
//   y = A' [ (G g G') * (B' d B) ] A / 4        the products are summed over the channels before A is applied
//
//        1  0 -1  0         2  0  0
//   B' = 0  1  1  0     G = 1  1  1     A' = 1  1  1  0
//        0 -1  1  0         1 -1  1          0  1 -1 -1
//        0  1  0 -1         0  0  2
//
// G is twice what is usual, so that everything is an integer; hence the division, which leaves no rest. Inputs and
// weights of 9 bits with sign become at most 4 * 255 and 9 * 255, which fit an int16, and sums are taken modulo 2^32:
// whatever wraps on the way comes back, as long as four times the result does not wrap.
#pragma once

#include "kernels/gemm/gemm.h"

namespace zeropoint {

// 4 * 9 * 255 * 255 * kWinogradMost < 2^31
constexpr int64_t kWinogradMost = 912, kWinogradMultiple = 16;  // channels
constexpr int64_t kWinogradProducts = 16, kTilePixels = 4;
// In y_rows: this pixel of a tile is outside of the output.
constexpr int64_t kNoPixel = INT64_MIN;

struct WinogradArgs {
    // Centered. Tile (i, j) reads the pixels (2 i, 2 j) to (2 i + 3, 2 j + 3).
    const int16_t* x = nullptr;
    int64_t line = 0;      // elements from one line of pixels to the next
    int64_t channels = 0;  // a multiple of kWinogradMultiple, at most kWinogradMost
    int64_t tile_lines = 0, tile_columns = 0;
    const int64_t* rows = nullptr;  // 0, channels, 2 channels, ... for each tile
    // As gemm's for three taps, the lines of the kernel, of three times the channels.
    const int8_t* panels = nullptr;
    int64_t n = 0;
    const int32_t* w_zero_point = nullptr;  // of the stored weights; nullptr if all are zero
    void* y = nullptr;
    const int64_t* y_rows = nullptr;  // the pixels of each tile, line by line; in elements, or kNoPixel
    Epilogue epilogue;
    // Memory for B' d B of all tiles, for G g G' of a panel, and for their products. Between what belongs to different
    // places of a tile there is a gap: else they would share a few places of the caches.
    int16_t *inputs = nullptr, *weights = nullptr;
    int32_t* sums = nullptr;

    int64_t tiles() const { return tile_lines * tile_columns; }
    static int64_t inputs_stride(int64_t tiles, int64_t channels) { return tiles * channels + 32; }
    static int64_t weights_stride(int64_t channels) { return channels * kPanel + 32; }
    static int64_t sums_stride(int64_t tiles) { return (tiles | 1) * kPanel; }
};

struct WinogradKernel {
    // Fills `inputs`.
    void (*transform)(const WinogradArgs& args);
    // The output channels of panels [begin, end), for all tiles.
    void (*multiply)(const WinogradArgs& args, int64_t begin, int64_t end);
};

}  // namespace zeropoint
