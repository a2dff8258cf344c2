// Sub-byte packing of whole tensors. See kernels/pack/pack.h for the layout.
#pragma once

#include <cstdint>

namespace zeropoint {

// values (rows x columns, one per byte) -> bytes (rows x ceil(columns * bits / 8))
void pack_rows(const uint8_t* values, uint8_t* bytes, int64_t rows, int64_t columns, int bits);
void unpack_rows(const uint8_t* bytes, uint8_t* values, int64_t rows, int64_t columns, int bits);

}  // namespace zeropoint
