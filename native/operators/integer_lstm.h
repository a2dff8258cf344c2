// One direction of an LSTM of which every part is rounded to 8 bits, over a whole sequence.
//
//   sums = given[t] + linear(h)                         in four parts of `hidden`: input, forget, cell, output
//   c    = forget(sums) * c + input(sums) * cell(sums)  each product and the sum rounded
//   h    = output(sums) * squash(c)                     is y[t]
//
// The functions are tables; sums and products are those of operators/binary.h, the linear layer that of
// operators/layers.h: the same bytes as one call for each of them.
#pragma once

#include "operators/layers.h"

#include <array>

namespace zeropoint {

struct Rounded {
    float scale = 1;
    int32_t zero_point = 0;
};

struct IntegerLstm {
    IntType type = IntType::u8;  // of everything
    int64_t steps = 0, batch = 0, hidden = 0;
    const LinearLayer* layer = nullptr;  // hidden -> 4 hidden
    const uint8_t* given = nullptr;      // (steps, batch, 4 hidden): what the input gives to the gates
    const uint8_t* h = nullptr;          // (batch, hidden): the first states
    const uint8_t* c = nullptr;
    Rounded given_as, h_as, c_as;
    Rounded linear, sums;
    std::array<Rounded, 4> gates;  // input, forget, cell, output
    Rounded kept, fresh;           // forget * c, input * cell
    Rounded cell, squashed, y_as;
    const uint8_t* tables = nullptr;  // (5, 256): of the four gates for sums, and of squash for c
    uint8_t* y = nullptr;             // (steps, batch, hidden)
    uint8_t* last_c = nullptr;        // (batch, hidden)
};

// Throws std::invalid_argument unless the layer has `hidden` inputs and 4 * `hidden` outputs.
void run_integer_lstm(const IntegerLstm& lstm);

}  // namespace zeropoint
