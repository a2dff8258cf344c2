// pack and unpack row by row. `Bulk` handles as many whole blocks of a row as it can and says how many values it did;
// the rest of the row is done here, one byte at a time.
#pragma once

#include "kernels/pack/pack.h"

namespace zeropoint {
namespace {

template <int kBits>
inline void pack_rest(const uint8_t* values, uint8_t* bytes, int64_t from, int64_t columns) {
    constexpr int kPerByte = 8 / kBits, kMask = (1 << kBits) - 1;
    for (int64_t c = from; c < columns; c += kPerByte) {
        int byte = 0;
        for (int k = 0; k < kPerByte && c + k < columns; ++k) byte |= (values[c + k] & kMask) << (k * kBits);
        bytes[c / kPerByte] = static_cast<uint8_t>(byte);
    }
}

template <int kBits>
inline void unpack_rest(const uint8_t* bytes, uint8_t* values, int64_t from, int64_t columns) {
    constexpr int kPerByte = 8 / kBits, kMask = (1 << kBits) - 1;
    for (int64_t c = from; c < columns; ++c)
        values[c] = static_cast<uint8_t>((bytes[c / kPerByte] >> (c % kPerByte * kBits)) & kMask);
}

template <class Bulk>
void pack_with(const PackArgs& a, int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
        const uint8_t* values = a.src + r * a.columns;
        uint8_t* bytes = a.dst + r * a.packed_columns();
        if (a.bits == 4)
            pack_rest<4>(values, bytes, Bulk::pack4(values, bytes, a.columns), a.columns);
        else
            pack_rest<2>(values, bytes, Bulk::pack2(values, bytes, a.columns), a.columns);
    }
}

template <class Bulk>
void unpack_with(const PackArgs& a, int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
        const uint8_t* bytes = a.src + r * a.packed_columns();
        uint8_t* values = a.dst + r * a.columns;
        if (a.bits == 4)
            unpack_rest<4>(bytes, values, Bulk::unpack4(bytes, values, a.columns), a.columns);
        else
            unpack_rest<2>(bytes, values, Bulk::unpack2(bytes, values, a.columns), a.columns);
    }
}

}  // namespace
}  // namespace zeropoint
