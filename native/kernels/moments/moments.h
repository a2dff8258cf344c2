// moments: the sums of 8-bit values and of their squares, exact.
//
//   sums[i] = sum(q)     squares[i] = sum(q * q)     int64
//
// over the elements of row i, or, across, over the rows of an image, for each of its columns.
#pragma once

#include "kernels/types.h"

namespace zeropoint {

struct MomentsArgs {
    // Columns are shared among threads in blocks of this many.
    static constexpr int64_t kColumns = 64;

    const void* x = nullptr;
    IntType type = IntType::u8;  // u8 or s8
    int64_t length = 0;          // elements in a row
    bool across = false;         // down the columns of images
    int64_t rows = 1;            // across: rows in an image
    int64_t* sums = nullptr;     // one for each row; across: one for each column of each image
    int64_t* squares = nullptr;  // as sums, or null if they are not needed

    int64_t blocks() const { return (length + kColumns - 1) / kColumns; }
};

namespace {  // internal linkage: this header is compiled once per instruction set

// Signed bytes are summed as q + 128, which is their bit pattern with the top bit flipped.
inline uint8_t flip_of(IntType type) { return type == IntType::s8 ? 0x80 : 0; }

}  // namespace

// The rows [begin, end); across: the blocks [begin, end), where image i has blocks i * blocks() and following.
using MomentsFn = void (*)(const MomentsArgs&, int64_t begin, int64_t end);

}  // namespace zeropoint
