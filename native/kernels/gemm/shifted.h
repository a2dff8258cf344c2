// Activations as shifted uint8 (see Operand), in loops that compilers vectorize.
#pragma once

#include "kernels/gemm/gemm.h"

namespace zeropoint {
namespace {

inline void convert_shifted(const uint8_t* x, int64_t n, const Activation& a, void* to) {
    uint8_t* __restrict y = static_cast<uint8_t*>(to);
    const uint8_t flip = a.is_signed ? 0x80 : 0;
    for (int64_t i = 0; i < n; ++i) y[i] = x[i] ^ flip;
}

// sums[m] = the sum of all channels of all taps of row m.
inline void row_sums(const GemmArgs& a, uint32_t* sums) {
    const uint8_t* x = static_cast<const uint8_t*>(a.x);
    for (int64_t m = 0; m < a.m; ++m) {
        uint32_t sum = 0;
        for (int64_t t = 0; t < a.tap_count; ++t) {
            const uint8_t* row = x + a.rows[m] + a.taps[t];
            for (int64_t c = 0; c < a.channels; ++c) sum += row[c];
        }
        sums[m] = sum;
    }
}

}  // namespace
}  // namespace zeropoint
