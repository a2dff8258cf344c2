// Names shared by every kernel family: element types, the shape a kernel sees, and how rounding is spelled.
#pragma once

#include <cstdint>

namespace zeropoint {

// Integer storage of quantized values.
enum class IntType : int { u8 = 0, s8 = 1, s16 = 2, s32 = 3 };

// A tensor as the quantization kernels see it: `rows` x `segments` x `length` contiguous elements, where all `length`
// elements of a segment share one (scale, zero_point). The parameters of segment s in row r stand at
//     index(r, s) = (row_base ? row_base[r] : r * row_stride) + s
//
//   per tensor                 1 x 1 x n          row_stride 0
//   per channel, axis a        before x C x after row_stride 0   (channels-last: everything else x C x 1)
//   per token                  tokens x 1 x n     row_stride 1
//   per group of g in a row    M x N/g x g        row_stride N/g
//   per block, any shape       rows of the last axis x blocks in it x block length, row_base[r] looked up
struct Grid {
    int64_t rows = 0;
    int64_t segments = 0;
    int64_t length = 0;
    int64_t row_stride = 0;
    const int64_t* row_base = nullptr;

    int64_t numel() const { return rows * segments * length; }
    int64_t base(int64_t row) const { return row_base != nullptr ? row_base[row] : row * row_stride; }
};

// PyTorch 2.13 rounds in several ways that differ only at ties (x / scale = k + 0.5) and out of range. rne is
// round-to-nearest, ties to even. With x = 0.5, scale = 1, zero_point = 3:
enum class RoundingVariant : int {
    // clamp(rne(x * inv) + zero_point)             rne(0.5) + 3 = 3.  Decomposed ops, fake quantize; the canonical one.
    split = 0,
    // clamp(rne(x * inv + zero_point))             rne(3.5) = 4.      Decomposed per-token and per-group ops.
    joined = 1,
    // clamp(rne(fma(x, inv, zero_point))), NaN -> qmax: quantize_per_tensor to 8 bits.
    fused = 2,
    // as `joined`, but a 32-bit result saturates where `joined` gives INT_MIN: quantize_per_channel, qint32 tensors.
    saturating = 3,
    // rne(x * inv + zero_point) to int64, its low 32 bits, then clamp: quantize_per_channel with float zero points.
    wrapping = 4,
};

}  // namespace zeropoint
