// embedding: bags of rows of a table, each bag added up (or its maximum taken) to one row of float32.
//
// A row of the table is `columns` values of `bits` bits, low bits first, padded to whole bytes, and then its scale and
// its bias, both float32 (8 bits) or both float16 (4 and 2 bits). With v the value of a column:
//   sum    y = fma(v, weight * scale, y + weight * bias)      from y = 0, in the order of the picks
//   mean   the sum / the number of picks in the bag
//   max    y = the larger of y and fma(v, weight * scale, weight * bias)
// in float32: each product rounded, each fma once. A pick of -1 is a row of zeros. An empty bag gives 0.
#pragma once

#include "kernels/types.h"

namespace zeropoint {

enum class BagMode : int { sum = 0, mean = 1, max = 2 };

struct EmbeddingArgs {
    const uint8_t* table = nullptr;
    int64_t columns = 0;
    int bits = 8;                      // 8, 4 or 2
    const int64_t* picks = nullptr;    // row numbers, checked, of the picks from picks_begin on; nullptr: pick i is row i
    const float* weights = nullptr;    // one for each pick; nullptr: 1
    const int64_t* offsets = nullptr;  // bag b has picks offsets[b] .. offsets[b + 1] - 1; nullptr: b * length ..
    int64_t length = 1;
    int64_t picks_begin = 0, picks_end = 0;
    BagMode mode = BagMode::sum;
    float* y = nullptr;  // bags x columns

    int64_t value_bytes() const { return (columns * bits + 7) / 8; }
    int64_t row_bytes() const { return value_bytes() + (bits == 8 ? 8 : 4); }
    int64_t bag_begin(int64_t bag) const { return offsets != nullptr ? offsets[bag] : bag * length; }
    int64_t row(int64_t pick) const { return picks != nullptr ? picks[pick - picks_begin] : pick; }
};

// The bags [begin, end).
using EmbeddingFn = void (*)(const EmbeddingArgs&, int64_t begin, int64_t end);

}  // namespace zeropoint
