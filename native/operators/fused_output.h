// What is done with a layer's bytes when they are made: a table they go through, and then the sum or product with
// another tensor. The thread that made a part of the result does it, while that is in its cache. The bytes are those of
// the layer followed by operators/lookup.h and operators/binary.h.
#pragma once

#include "operators/matmul.h"
#include "operators/scratch.h"

namespace zeropoint {

struct PartMemory;
struct PartRows;

// y[y_rows[i] + c] = table[y[y_rows[i] + c]] for `columns` columns of those of m rows that are there.
void look_up(const uint8_t* table, uint8_t* y, const int64_t* y_rows, int64_t m, int64_t columns);

// y[y_rows[i] + c] = table[made[i * columns + c]] likewise: one lookup for all of them.
void look_up_apart(const uint8_t* table, uint8_t* made, uint8_t* y, const int64_t* y_rows, int64_t m, int64_t columns);

// Rows shorter than this are made one behind the other where they are to go through a table but are apart in the
// output, as those of transposed convolutions: a lookup for each takes longer than a copy.
constexpr int64_t kShortRow = 96;

// y[y_rows[i] + c] = made[i * columns + c] o b[y_rows[i] + c] for those of m rows that are there, with the places of b
// that `y` has in the output; before, `made` goes through the table, if there is one. b may be the output itself: every
// element is read by the one call that writes it.
void combine(const MatmulOutput& output, uint8_t* made, uint8_t* y, const int64_t* y_rows, int64_t m, int64_t columns);

// multiply() writes the columns [first, first + columns) of m rows of `a`, the arguments of a kernel: to the output or,
// if they are to be combined or are short, to memory of this thread, from where they come into the output. Rows whose
// place is negative are not there.
template <class Args, class Multiply>
void multiply_part(const MatmulOutput& output, int64_t m, int64_t first, int64_t columns, Args& a,
                   const Multiply& multiply) {
    void* const y = a.y;
    const int64_t* const y_rows = a.y_rows;
    // A residual is read at the places of the output.
    const bool apart = output.table != nullptr && output.z == nullptr && columns < kShortRow && m > 1 &&
                       y_rows[1] - y_rows[0] != columns;
    if (output.then == nullptr && !apart) {
        multiply();
        if (output.table != nullptr) look_up(output.table, static_cast<uint8_t*>(y) + first, y_rows, m, columns);
        return;
    }
    int64_t* const rows = reinterpret_cast<int64_t*>(scratch_of<PartRows>(static_cast<size_t>(m) * sizeof(int64_t)));
    for (int64_t i = 0; i < m; ++i) rows[i] = y_rows[i] < 0 ? -1 : i * columns;
    uint8_t* const made = scratch_of<PartMemory>(static_cast<size_t>(first + m * columns));
    a.y = made;
    a.y_rows = rows;
    multiply();
    a.y = y;
    a.y_rows = y_rows;
    if (output.then != nullptr)
        combine(output, made + first, static_cast<uint8_t*>(y) + first, y_rows, m, columns);
    else
        look_up_apart(output.table, made + first, static_cast<uint8_t*>(y) + first, y_rows, m, columns);
}

// The most memory that a thread takes for it, for parts of kGemmRows rows.
inline double combination_scratch(int64_t outputs) {
    return static_cast<double>(kGemmRows + 1) * static_cast<double>(outputs) + static_cast<double>(kGemmRows) * 8;
}
// The same without another tensor.
inline double table_scratch(int64_t outputs) {
    return combination_scratch(outputs < kShortRow ? outputs : kShortRow) + static_cast<double>(outputs);
}

}  // namespace zeropoint
