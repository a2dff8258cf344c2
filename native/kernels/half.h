// float16 as its 16 bits, without instructions of any kind.
#pragma once

#include <cstdint>
#include <cstring>

namespace zeropoint {
namespace {

// Exact.
inline float from_half(uint16_t half) {
    const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16, rest = half & 0x7FFFu;
    uint32_t bits = 0;
    if (rest < 0x400u) {
        const float subnormal = static_cast<float>(rest) * 0x1p-24f;
        std::memcpy(&bits, &subnormal, sizeof bits);
    } else if (rest < 0x7C00u) {
        bits = (rest << 13) + (112u << 23);
    } else {
        bits = 0x7F800000u | (rest & 0x3FFu) << 13;
    }
    bits |= sign;
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

// To nearest, ties to even; beyond 65504 to infinity.
inline uint16_t to_half(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    const uint32_t sign = bits >> 16 & 0x8000u;
    bits &= 0x7FFFFFFFu;
    uint32_t half = 0;
    if (bits > 0x7F800000u) {
        half = 0x7E00u;
    } else if (bits >= 0x477FF000u) {  // 65520
        half = 0x7C00u;
    } else if (bits < 0x38800000u) {  // 2^-14
        // Subnormal halves are multiples of 2^-24, as are the floats from 0.5 to 1.
        float magnitude;
        std::memcpy(&magnitude, &bits, sizeof magnitude);
        magnitude += 0.5f;
        std::memcpy(&half, &magnitude, sizeof half);
        half -= 0x3F000000u;
    } else {
        half = ((bits + 0xFFFu + (bits >> 13 & 1u)) >> 13) - (112u << 10);
    }
    return static_cast<uint16_t>(sign | half);
}

}  // namespace
}  // namespace zeropoint
