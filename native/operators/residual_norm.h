// y = layer_norm(x + other), and its bytes, some rows at a time: bytes that x was, the sum and the norm do not go over
// memory in between.
// The bytes of what these do one after the other: a sum in float32, operators/float_functions.h, operators/affine.h.
#pragma once

#include "kernels/types.h"

namespace zeropoint {

struct ResidualNorm {
    static constexpr int64_t kMostRows = 8;  // that a thread takes through all of it

    const float* x = nullptr;
    const void* x_bytes = nullptr;  // or these, dequantized, are x
    IntType x_type = IntType::u8;
    float x_scale = 1, x_zero_point = 0;
    const float* other = nullptr;  // or none
    float* sum = nullptr;          // where x + other goes, or none
    int64_t rows = 0, length = 0;
    const float *weight = nullptr, *bias = nullptr;  // or none: 1 and 0
    double eps = 0;
    bool centered = true;   // else RMS norm
    float* y = nullptr;     // or none, if there are bytes
    void* bytes = nullptr;  // or none
    IntType type = IntType::u8;
    double scale = 1, zero_point = 0, low = 0, high = 255;
};

void residual_norm(const ResidualNorm& n);

}  // namespace zeropoint
