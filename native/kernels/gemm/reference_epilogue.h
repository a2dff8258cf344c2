// The specification of Epilogue: one element.
#pragma once

#include "kernels/gemm/gemm.h"
#include "kernels/conversions.h"

#include <cmath>

namespace zeropoint {
namespace {

inline void reference_epilogue(const Epilogue& e, int32_t acc, int64_t n, void* y, int64_t at) {
    float v = static_cast<float>(low32(int64_t{acc} + e.bias[n]));
    if (e.after != nullptr) v = v * e.first;
    v = v * e.multiplier[n];
    v = v + e.float_bias[n];
    if (e.after != nullptr) v = v * e.after[n];
    if (e.type == OutputType::f32) {
        if (e.leaky() && v < 0) v = v * e.slope;
        if (v > e.high) v = e.high;
        if (v < e.low) v = e.low;
        static_cast<float*>(y)[at] = v;
        return;
    }
    if (e.z != nullptr) {
        const int32_t z =
            e.z_type == IntType::s8 ? static_cast<const int8_t*>(e.z)[at] : static_cast<const uint8_t*>(e.z)[at];
        const float residual = static_cast<float>(z - e.z_zero_point) * e.z_multiplier;
        v = v + residual;
    }
    if (e.leaky() && v < 0) v = v * e.slope;
    if (e.zero_point_first) {
        const float shifted = v + static_cast<float>(e.zero_point);
        v = std::nearbyintf(shifted) - static_cast<float>(e.zero_point);
    }
    const float low = static_cast<float>(e.lo - e.zero_point), high = static_cast<float>(e.hi - e.zero_point);
    v = v < high ? v : high;
    v = v > low ? v : low;
    const int32_t q = static_cast<int32_t>(std::nearbyintf(v)) + e.zero_point;
    const uint8_t bits = static_cast<uint8_t>(q);
    static_cast<uint8_t*>(y)[at] = bits;
}

}  // namespace
}  // namespace zeropoint
