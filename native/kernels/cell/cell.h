// cell: what a recurrent layer does with its two products, x W_ih' + b_ih and h W_hh' + b_hh, element by element. With
// x and h the gates that come from the input and from the hidden state, all in float32, operation by operation:
//
//   lstm   i, f, g, o = sigmoid(h0 + x0), sigmoid(h1 + x1), tanh(h2 + x2), sigmoid(h3 + x3)
//          c = f * c + i * g;   h = o * tanh(c)                                          two products and a sum
//   gru    r, z = sigmoid(h0 + x0), sigmoid(h1 + x1);   n = tanh(x2 + r * h2);   h = (h - n) * z + n
//   tanh   h = tanh(h0 + x0)
//   relu   h = max(h0 + x0, 0)                                                           NaN stays NaN
//
// Both functions are made of expm1 with one reduction and one polynomial, within three units in the last place:
//
//   n = rne(v * log2(e));   r = fma(n, -ln2_high, v);   r = fma(n, -ln2_low, r)
//   q = fma(r * r, p(r), r)                           p by Horner's rule with fma; q = expm1(r)
//   sigmoid(v) = 1 / (1 + fma(s, q, s))               of -clamp(v, -87, 87), s = 2^n
//   tanh(v)    = m / (m + 2),  m = fma(s, q, s - 1)   of 2 * clamp(v, -10, 10)
#pragma once

#include "kernels/types.h"

namespace zeropoint {

enum class Cell : int { lstm = 0, gru = 1, tanh = 2, relu = 3 };

// Hidden units stand in blocks of so many; the gates as [row][block][gate][unit of the block].
constexpr int64_t kCellBlock = 16;

struct CellArgs {
    Cell cell = Cell::lstm;
    int64_t rows = 0;
    const float* x = nullptr;  // gates from the input, from the hidden state
    const float* h = nullptr;
    int64_t x_stride = 0, h_stride = 0;
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

constexpr float kLog2e = 1.44269502162933349609375f;
constexpr float kLn2High = 0.693145751953125f;  // 16 bits: times n it is exact
constexpr float kLn2Low = 1.428606820309417e-06f;
// (expm1(r) - r) / r^2 for |r| <= ln(2) / 2, within 3e-8 of expm1.
constexpr float kExponential[5] = {0.5f, 0.16666576266288757f, 0.04166646301746368f, 0.00836323574185371f,
                                   0.001393373357132077f};
constexpr float kSigmoidBound = 87.0f, kTanhBound = 10.0f;

}  // namespace

}  // namespace zeropoint
