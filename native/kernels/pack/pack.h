// pack / unpack: 2- and 4-bit unsigned values, low bits first, every row padded with zeros to whole bytes.
//   4 bit: byte = v[0] | v[1] << 4            2 bit: byte = v[0] | v[1] << 2 | v[2] << 4 | v[3] << 6
#pragma once

#include "kernels/types.h"

namespace zeropoint {

struct PackArgs {
    const uint8_t* src = nullptr;  // pack: values, rows x columns; unpack: bytes, rows x packed_columns
    uint8_t* dst = nullptr;        // the other one
    int64_t columns = 0;           // values in a row
    int bits = 4;                  // 2 or 4; pack keeps the low `bits` of each value

    int per_byte() const { return 8 / bits; }
    int64_t packed_columns() const { return (columns + per_byte() - 1) / per_byte(); }
};

// Handles the rows [begin, end).
using PackFn = void (*)(const PackArgs&, int64_t begin, int64_t end);
using UnpackFn = void (*)(const PackArgs&, int64_t begin, int64_t end);

}  // namespace zeropoint
