// Rounding of activations for group_gemm, in loops that compilers vectorize for the instruction set of each file; and
// the choice of the loop over panels for a kind of weights.
#pragma once

#include "kernels/group_gemm/group_gemm.h"

#include <cstring>
#include <limits>

namespace zeropoint {
namespace {

// Numbers up to 2^22 in size are rounded to the nearest integer, ties to even, when this is added; its low bits then
// are the integer.
constexpr float kRounder = 12582912.0f;
constexpr int32_t kRounderBits = 0x4B400000;

// 32 numbers: the bits of the largest without its sign.
inline int32_t most_of_unit(const float* x) {
    int32_t bits[kGroupUnit], most = 0;
    std::memcpy(bits, x, sizeof bits);
    for (int64_t k = 0; k < kGroupUnit; ++k) {
        const int32_t size = bits[k] & 0x7FFFFFFF;
        most = size > most ? size : most;
    }
    return most;
}

inline int32_t round_unit(const float* x, float factor, int8_t* q) {
    int32_t total = 0;
    for (int64_t k = 0; k < kGroupUnit; ++k) {
        const float shifted = x[k] * factor + kRounder;
        int32_t bits;
        std::memcpy(&bits, &shifted, sizeof bits);
        bits -= kRounderBits;
        total += bits;
        q[k] = static_cast<int8_t>(bits);
    }
    return total;
}

inline void prepare_group_rows(const float* x, int64_t t, int64_t groups, int64_t group, int8_t* q, float* scale,
                               int32_t* sum) {
    constexpr int32_t kInfinity = 0x7F800000;
    for (int64_t r = 0; r < t; ++r)
        for (int64_t g = 0; g < groups; ++g) {
            const float* from = x + (r * groups + g) * group;
            int32_t bits = 0;
            for (int64_t k = 0; k < group; k += kGroupUnit) {
                const int32_t size = most_of_unit(from + k);
                bits = size > bits ? size : bits;
            }
            float most;
            std::memcpy(&most, &bits, sizeof most);
            const bool finite = bits < kInfinity, zero = !finite || most < kLeastGroup;
            int32_t total = 0;
            for (int64_t k = 0; k < group; k += kGroupUnit) {
                int8_t unit[kGroupUnit] = {};
                if (!zero) total += round_unit(from + k, 127.0f / most, unit);
                int8_t* to = q + ((g * group + k) / 4 * t + r) * 4;
                for (int64_t i = 0; i < kGroupUnit / 4; ++i) std::memcpy(to + i * t * 4, unit + i * 4, 4);
            }
            scale[g * t + r] = finite ? most * (1.0f / 127.0f) : std::numeric_limits<float>::quiet_NaN();
            sum[g * t + r] = total;
        }
}

// Panels<bits, with minima>::multiply is for weights of one kind.
template <template <int, bool> class Panels>
void multiply_as(const GroupGemmArgs& a, int64_t begin, int64_t end) {
    if (a.bits == 8)
        (a.minimum != nullptr ? Panels<8, true>::multiply : Panels<8, false>::multiply)(a, begin, end);
    else
        (a.minimum != nullptr ? Panels<4, true>::multiply : Panels<4, false>::multiply)(a, begin, end);
}

}  // namespace
}  // namespace zeropoint
