// float16 and bfloat16 as their 16 bits, without instructions of any kind.
#pragma once

#include "kernels/float_bits.h"

namespace zeropoint {
namespace {

// Exact. Subnormal halves are made of integers: no float32 in between is subnormal.
inline float from_half(uint16_t half) {
    const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16, rest = half & 0x7FFFu;
    if (rest >= 0x7C00u) return from_bits(sign | 0x7F800000u | (rest & 0x3FFu) << 13);
    if (rest >= 0x0400u) return from_bits(sign | ((rest << 13) + (112u << 23)));
    return from_bits(sign | bits_of(static_cast<float>(rest) * 0x1p-24f));
}

// To nearest, ties to even; beyond 65504 to infinity.
inline uint16_t to_half(float x) {
    const uint32_t all = bits_of(x), sign = all >> 16 & 0x8000u, bits = all & 0x7FFFFFFFu;
    uint32_t half = 0;
    if (bits > 0x7F800000u)
        half = 0x7E00u;
    else if (bits >= 0x477FF000u)  // 65520
        half = 0x7C00u;
    else if (bits < 0x38800000u)  // 2^-14: subnormal halves are multiples of 2^-24, as are the floats from 0.5 to 1
        half = bits_of(from_bits(bits) + 0.5f) - 0x3F000000u;
    else
        half = ((bits + 0xFFFu + (bits >> 13 & 1u)) >> 13) - (112u << 10);
    return static_cast<uint16_t>(sign | half);
}

inline float from_bfloat16(uint16_t x) { return from_bits(static_cast<uint32_t>(x) << 16); }

// To nearest, ties to even; NaN stays NaN.
inline uint16_t to_bfloat16(float x) {
    const uint32_t bits = bits_of(x);
    if (x != x) return static_cast<uint16_t>(bits >> 16 | 0x40u);
    return static_cast<uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

}  // namespace
}  // namespace zeropoint
