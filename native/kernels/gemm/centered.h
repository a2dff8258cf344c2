// Activations as centered int16 (see Operand).
#pragma once

#include "kernels/gemm/gemm.h"
#include "kernels/simd/bytes.h"

namespace zeropoint {
namespace {

inline void convert_centered(const uint8_t* x, int64_t n, const Activation& a, void* to) {
    int16_t* __restrict y = static_cast<int16_t*>(to);
    // s8 bits xor 128 are x + 128 as a u8.
    const uint8_t flip = a.is_signed ? 0x80 : 0;
    const int16_t zero_point = static_cast<int16_t>(a.shifted_zero_point());
    for (int64_t i = center_bytes(x, n, flip, zero_point, y); i < n; ++i)
        y[i] = static_cast<int16_t>((x[i] ^ flip) - zero_point);
}

}  // namespace
}  // namespace zeropoint
