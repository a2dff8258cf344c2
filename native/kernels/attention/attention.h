// attention: scores of queries and keys, scaled, masked, as shares of their sum, times values; 8 bits in and out.
//
//   s[m][n] = clamp(rne(acc * score_multiplier) + score_zero_point)     acc: sum over d of (q - q_zp) (k - k_zp), exact
//   x[m][n] = (s - score_zero_point) * score_scale, then the operations in their order
//   p[m][n] = clamp(rne(softmax(x[m])[n] * share_inverse) + share_zero_point)       as float_softmax sums, see there
//   y[m][e] = clamp(rne(acc * multiplier) + zero_point)                 acc: sum over n of (p - share_zp) (v - v_zp)
//
// Everything is float32 with every operation rounded, so that the bytes are those of the steps one after the other.
// Scores have the type of q, and y that of the shares. Sums are taken modulo 2^32.
#pragma once

#include "kernels/types.h"

namespace zeropoint {

// What is done to a score: x * number, x / number, x + number, x + mask, mask ? x : number, mask ? number : x.
enum class ScoreOperationKind { multiply, divide, add, add_mask, keep, replace };

// Heads are the elements of a batch of at most 6 axes: how far apart those of a tensor are along each of them.
struct HeadStrides {
    static constexpr int kAxes = 6;
    int64_t along[kAxes] = {};
};

struct ScoreOperation {
    ScoreOperationKind kind = ScoreOperationKind::multiply;
    float number = 0;
    const void* mask = nullptr;   // float32, or bool for keep and replace
    HeadStrides heads;            // in elements
    int64_t row = 0, column = 0;  // likewise; column: 0 or 1
};

// 8-bit matrices, one for each head, with neighbours in memory along their rows.
struct AttentionMatrix {
    const uint8_t* x = nullptr;
    IntType type = IntType::u8;
    int32_t zero_point = 0;  // in the range of the type
    HeadStrides heads;
    int64_t row = 0;
};

struct AttentionArgs {
    static constexpr int64_t kBlock = 64;  // rows of an item of work
    static constexpr int64_t kRows = 4;    // rows that kernels take together
    static constexpr int kOperations = 8;

    int64_t batch[HeadStrides::kAxes] = {1, 1, 1, 1, 1, 1};
    int64_t rows = 0, columns = 0, depth = 0, width = 0;  // all at least one
    AttentionMatrix q, k, v;  // of each head (rows, depth), (columns, depth), (columns, width)
    float score_multiplier = 1;
    float score_scale = 1;
    int32_t score_zero_point = 0;
    ScoreOperation operations[kOperations];
    int operation_count = 0;
    bool safe = false;  // see float_softmax
    IntType share_type = IntType::u8;
    float share_inverse = 1;
    int32_t share_zero_point = 0, share_low = 0, share_high = 255;
    float multiplier = 1;
    int32_t zero_point = 0;
    uint8_t* y = nullptr;
    HeadStrides y_heads;
    int64_t y_row = 0;

    int64_t heads() const {
        int64_t n = 1;
        for (int64_t size : batch) n *= size;
        return n;
    }
    // Where a head begins.
    int64_t place(const HeadStrides& strides, int64_t head) const {
        int64_t at = 0;
        for (int i = HeadStrides::kAxes; i-- > 0; head /= batch[i]) at += head % batch[i] * strides.along[i];
        return at;
    }

    int64_t blocks() const { return (rows + kBlock - 1) / kBlock; }
    int64_t items() const { return heads() * blocks(); }
    // The memory that a kernel needs while it works, in bytes, on a 64-byte boundary.
    double memory() const {
        const double up = 16, c = static_cast<double>(columns) + 64, d = static_cast<double>(depth) + up,
                     e = static_cast<double>(width) + up;
        const double panels = 2 * c * d + 2 * c * e + 4 * (c + e), lines = kRows * (7 * c + 2 * d + 64);
        return panels + lines + 1024;
    }
};

// The items [begin, end): blocks of rows of one head after the other.
using AttentionFn = void (*)(const AttentionArgs&, int64_t begin, int64_t end, uint8_t* memory);

inline int32_t least_of(IntType type) { return type == IntType::s8 ? -128 : 0; }

}  // namespace zeropoint
