// The specification of pack and unpack, one value at a time. It is never optimized.
#include "kernels/pack/pack.h"

namespace zeropoint {

void pack_reference(const PackArgs& a, int64_t begin, int64_t end) {
    const int mask = (1 << a.bits) - 1;
    for (int64_t r = begin; r < end; ++r)
        for (int64_t b = 0; b < a.packed_columns(); ++b) {
            int byte = 0;
            for (int k = 0; k < a.per_byte(); ++k) {
                const int64_t c = b * a.per_byte() + k;
                if (c < a.columns) byte |= (a.src[r * a.columns + c] & mask) << (k * a.bits);
            }
            a.dst[r * a.packed_columns() + b] = static_cast<uint8_t>(byte);
        }
}

void unpack_reference(const PackArgs& a, int64_t begin, int64_t end) {
    const int mask = (1 << a.bits) - 1;
    for (int64_t r = begin; r < end; ++r)
        for (int64_t c = 0; c < a.columns; ++c) {
            const uint8_t byte = a.src[r * a.packed_columns() + c / a.per_byte()];
            a.dst[r * a.columns + c] = static_cast<uint8_t>((byte >> (c % a.per_byte() * a.bits)) & mask);
        }
}

}  // namespace zeropoint
