// embedding: bags of rows of a table, each bag added up (or its maximum taken) to one row of float32.
//
// A row of the table is `columns` values of `bits` bits, low bits first, padded to whole bytes, and then its scale and
// its bias, both float32 (8 bits) or both float16 (4 and 2 bits). With v the value of a column:
//   sum    y = fma(v, weight * scale, y + weight * bias)      from y = 0, in the order of the picks
//   mean   the sum / the number of picks in the bag
//   max    y = the larger of y and fma(v, scale, bias)                 unweighted
// in float32: each product rounded, each fma once. An empty bag gives 0.
// No row is read before its number is known to be one; the first pick that has no row ends the work.
#pragma once

#include "kernels/types.h"

namespace zeropoint {

enum class BagMode : int { sum = 0, mean = 1, max = 2 };

struct EmbeddingArgs {
    const uint8_t* table = nullptr;
    int64_t rows = 0;
    int64_t columns = 0;
    int bits = 8;                      // 8, 4 or 2
    const int64_t* picks = nullptr;    // row numbers, of the picks from picks_begin to picks_end - 1
    bool pruned = false;               // -1 is a row of zeros
    const float* weights = nullptr;    // one for each pick; nullptr: 1
    const int64_t* offsets = nullptr;  // bag b has picks offsets[b] .. offsets[b + 1] - 1; nullptr: b * length ..
    int64_t length = 1;
    int64_t picks_begin = 0, picks_end = 0;
    BagMode mode = BagMode::sum;
    float* y = nullptr;  // bags x columns

    int64_t value_bytes() const { return (columns * bits + 7) / 8; }
    int64_t row_bytes() const { return value_bytes() + (bits == 8 ? 8 : 4); }
    int64_t bag_begin(int64_t bag) const { return offsets != nullptr ? offsets[bag] : bag * length; }
    int64_t row(int64_t pick) const { return picks[pick - picks_begin]; }
    bool has(int64_t row) const { return static_cast<uint64_t>(row) < static_cast<uint64_t>(rows); }
    bool is_zeros(int64_t row) const { return pruned && row == -1; }
};

// The bags [begin, end). Returns the first pick that has no row, or -1; y is then unspecified.
using EmbeddingFn = int64_t (*)(const EmbeddingArgs&, int64_t begin, int64_t end);

}  // namespace zeropoint
