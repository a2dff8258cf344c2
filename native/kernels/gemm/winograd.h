// 3x3 convolutions of stride 1 with 36 multiplications where there would be 144: Winograd's F(4x4, 3x3), in exact
// integers. A tile of 4 x 4 outputs reads 6 x 6 inputs d; with the kernel g, and * taken element by element:
//
//   576 y = A' [ (G g G') * (B' d B) ] A        the products are summed over the channels before A is applied
//
//        4  0 -5  0  1  0        6  0  0
//        0 -4 -4  1  1  0        4  4  4         1 -1 -1  1  1  0
//   B' = 0  4 -4 -1  1  0    G = 4 -4  4    A' = 0 -1  1  2 -2  0
//        0 -2 -1  2  1  0        1  2  4         0 -1 -1  4  4  0
//        0  2 -1 -2  1  0        1 -2  4         0 -1  1  8 -8 24
//        0  4  0 -5  0  1        0  0  1
//
// Why that is exact:
//   inputs    rows of B' sum up to 10 in size: centered inputs, at most 255 in size, become at most 100 * 255; shifted
//             ones, 0 to 255, become -50 * 255 to 68 * 255. Both fit an int16.
//   weights   rows of G sum up to 12 in size: 144 times the largest weight (without its zero point) must fit an int16.
//   sums      are taken modulo 2^32, and so is 576 y = 64 * 9 y. 9 is odd and has an inverse modulo 2^32: 64 y follows,
//             and y, if it is known in which window of 2^26 integers it lies. The window of an output channel is as
//             wide as 255 times the sum of its weights' sizes; its middle is that of the least and the greatest y.
// Where a weight or a window is too large, the plain kernel computes the layer.
#pragma once

#include "kernels/gemm/gemm.h"

namespace zeropoint {

constexpr int64_t kWinogradTile = 4, kWinogradReach = 6;  // outputs and inputs along an axis
constexpr int64_t kWinogradProducts = kWinogradReach * kWinogradReach, kTilePixels = kWinogradTile * kWinogradTile;
// The largest weight, and the largest sum of the sizes of an output channel's weights. The window is a little narrower
// than 2^26: its middle is rounded.
constexpr int64_t kWinogradWeight = 32767 / 144, kWinogradWeights = ((int64_t{1} << 26) - 4) / 255;
constexpr uint32_t kInverseOf9 = 954437177;
static_assert(kInverseOf9 * 9u == 1);
constexpr int64_t kWinogradMultiple = 4;  // of channels: every kernel needs this or more
// In y_rows: this pixel of a tile is outside of the output.
constexpr int64_t kNoPixel = INT64_MIN;

// A block of tiles, from one strip of an image or several.
struct WinogradArgs {
    int64_t channels = 0;  // a multiple of the kernel's
    int64_t tiles = 0;
    // As gemm's for three taps, the lines of the kernel, of three times the channels.
    const int8_t* panels = nullptr;
    int64_t n = 0;
    const int32_t* w_zero_point = nullptr;  // of the stored weights; nullptr if all are zero
    const int32_t* w_sums = nullptr;        // of the stored weights of each output channel
    int32_t x_zero_point = 0;               // of the shifted activations
    void* y = nullptr;
    const int64_t* y_rows = nullptr;  // the pixels of each tile, line by line; in elements, or kNoPixel
    Epilogue epilogue;
    // Memory for B' d B of all tiles, for G g G' of a panel, and for their products, of kSumTiles tiles at a time.
    // Between what belongs to different places of a tile there is a gap: else they would share a few places of the
    // caches.
    int16_t *inputs = nullptr, *weights = nullptr;
    int32_t* sums = nullptr;

    static int64_t inputs_stride(int64_t tiles, int64_t channels) { return tiles * channels + 32; }
    static int64_t weights_stride(int64_t channels) { return channels * kPanel + 32; }
    static constexpr int64_t kSumTiles = 56;  // 126 KB
    static constexpr int64_t kSumsStride = (kSumTiles + 1) * kPanel;
    // Calls run(first, past) for parts of the tiles, which are equal or nearly.
    template <class Run>
    void in_parts(const Run& run) const {
        const int64_t parts = (tiles + kSumTiles - 1) / kSumTiles;
        for (int64_t i = 0; i < parts; ++i) run(tiles * i / parts, tiles * (i + 1) / parts);
    }
};

// The tiles of one strip. Tile (i, j) reads the pixels (4 i, 4 j) to (4 i + 5, 4 j + 5).
struct WinogradStrip {
    const void* x = nullptr;  // prepared for gemm, see Operand
    int64_t line = 0;         // elements from one line of pixels to the next
    int64_t tile_lines = 0, tile_columns = 0;
    int64_t first = 0;  // tile of the block
};

// What the parts take, in multiplications of the plain kernel: of one transformed input, weight and sum (with its part
// of the epilogue), and of one product of 16 bits.
struct WinogradCosts {
    double input, weight, sum, product;
};

struct WinogradKernel {
    int64_t multiple;  // of channels
    WinogradCosts costs;
    // Fills `inputs` of the tiles of a strip.
    void (*transform)(const WinogradArgs& args, const WinogradStrip& strip);
    // The output channels of panels [begin, end), for all tiles.
    void (*multiply)(const WinogradArgs& args, int64_t begin, int64_t end);
};

}  // namespace zeropoint
