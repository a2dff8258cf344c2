// Conversions between float32 and the 16-bit floats, the same everywhere.
#pragma once

#include <cstdint>
#include <cstring>

namespace zeropoint {
namespace {

inline float float_of(uint32_t bits) {
    float f;
    std::memcpy(&f, &bits, sizeof f);
    return f;
}

inline uint32_t bits_of(float f) {
    uint32_t bits;
    std::memcpy(&bits, &f, sizeof bits);
    return bits;
}

// IEEE binary16, exactly.
inline float half_to_float(uint16_t half) {
    const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16, rest = half & 0x7FFFu;
    if (rest >= 0x7C00u) return float_of(sign | 0x7F800000u | (rest & 0x3FFu) << 13);
    if (rest >= 0x0400u) return float_of(sign | ((rest << 13) + ((127u - 15u) << 23)));
    const float small = static_cast<float>(rest) * 0x1p-24f;
    return float_of(sign | bits_of(small));
}

inline float bfloat16_to_float(uint16_t x) { return float_of(static_cast<uint32_t>(x) << 16); }

// To nearest, ties to even; NaN stays NaN.
inline uint16_t float_to_bfloat16(float x) {
    const uint32_t bits = bits_of(x);
    if (x != x) return static_cast<uint16_t>(bits >> 16 | 0x40u);
    return static_cast<uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

}  // namespace
}  // namespace zeropoint
