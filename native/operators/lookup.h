// A function of 8-bit values on whole tensors, given as its 256 results.
#pragma once

#include <cstdint>

namespace zeropoint {

// y[i] = table[x[i]]; see kernels/lookup/lookup.h for the order of the table. y may be x.
void lookup(const uint8_t* x, const uint8_t* table, uint8_t* y, int64_t n);

// Rows of `length` bytes, of which row r has the table r % tables: channels with a function of their own.
void lookup_rows(const uint8_t* x, const uint8_t* table, int64_t tables, uint8_t* y, int64_t rows, int64_t length);

}  // namespace zeropoint
