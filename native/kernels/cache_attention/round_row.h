// A row of numbers as bytes with one scale: queries, and the keys and values that a cache keeps.
#pragma once

#include "kernels/group_gemm/group_gemm.h"

#include <cmath>
#include <cstdint>
#include <limits>

namespace zeropoint {
namespace {

// Gives the scale; the formula is that of a group in group_gemm.h.
inline float round_row(const float* x, int64_t count, int8_t* q) {
    float most = 0;
    bool finite = true;
    for (int64_t i = 0; i < count; ++i) {
        finite = finite && std::isfinite(x[i]);
        most = std::abs(x[i]) > most ? std::abs(x[i]) : most;
    }
    const bool zero = !finite || most < kLeastGroup;
    const float factor = zero ? 0.0f : 127.0f / most;
    // Adding it rounds to the nearest integer, ties to even.
    constexpr float kRounder = 12582912.0f;
    for (int64_t i = 0; i < count; ++i)
        q[i] = zero ? int8_t{0} : static_cast<int8_t>((x[i] * factor + kRounder) - kRounder);
    return finite ? most * (1.0f / 127.0f) : std::numeric_limits<float>::quiet_NaN();
}

}  // namespace
}  // namespace zeropoint
