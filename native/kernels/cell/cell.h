// cell: what a recurrent layer does with its two products, x W_ih' + b_ih and h W_hh' + b_hh, element by element. With
// x and h the gates that come from the input and from the hidden state, all in float32, operation by operation:
//
//   lstm   i, f, g, o = sigmoid(h0 + x0), sigmoid(h1 + x1), tanh(h2 + x2), sigmoid(h3 + x3)
//          c = f * c + i * g;   h = o * tanh(c)                                          two products and a sum
//   gru    r, z = sigmoid(h0 + x0), sigmoid(h1 + x1);   n = tanh(x2 + r * h2);   h = (h - n) * z + n
//   tanh   h = tanh(h0 + x0)
//   relu   h = max(h0 + x0, 0)                                                           NaN stays NaN
//
// kernels/activations.h has both functions. Products of rows that were quantized by ranges of their own get their scale
// and bias here, on the way: see CellGates.
#pragma once

#include "kernels/types.h"

namespace zeropoint {

enum class Cell : int { lstm = 0, gru = 1, tanh = 2, relu = 3 };

// Hidden units stand in blocks of so many; the gates as [row][block][gate][unit of the block].
constexpr int64_t kCellBlock = 16;

// The gates that a product gave, with `stride` elements from row to row. Where the rows of its operand have scales of
// their own, gate n of a row is
//   (v[n] - zero_point[row] * sums[n]) * scale[row] + bias[n]        operation by operation; sums[n]: what ones give
// and v[n] elsewhere.
struct CellGates {
    const float* v = nullptr;
    int64_t stride = 0;
    const float *scale = nullptr, *zero_point = nullptr;  // one for each row, or null
    const float *sums = nullptr, *bias = nullptr;         // in blocks, as a row of v

    bool by_rows() const { return scale != nullptr; }
};

struct CellArgs {
    Cell cell = Cell::lstm;
    int64_t rows = 0;
    CellGates x, h;                 // from the input, from the hidden state; both by_rows(), or neither
    const float* before = nullptr;  // the hidden state, as it was and as it will be
    float* after = nullptr;
    float* c = nullptr;  // lstm: the cell state, in place
    int64_t stride = 0;  // of all three
    float* low = nullptr;
    float* high = nullptr;  // for each row the range of 0 and of `after` in these blocks; NaN if one of these is
};

// The blocks [begin, end) of all rows.
using CellFn = void (*)(const CellArgs&, int64_t begin, int64_t end);

namespace {  // internal linkage: this header is compiled once per instruction set

// Products that each hidden unit needs.
constexpr int64_t cell_gates(Cell cell) { return cell == Cell::lstm ? 4 : cell == Cell::gru ? 3 : 1; }

}  // namespace

}  // namespace zeropoint
