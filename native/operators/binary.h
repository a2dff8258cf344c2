// Sums and products of two quantized tensors of 8 bits, one of which may be repeated (broadcasting).
#pragma once

#include "kernels/binary/binary.h"

#include <cstdint>
#include <vector>

namespace zeropoint {

struct Quantized {
    const void* data = nullptr;
    float scale = 1;
    int32_t zero_point = 0;
};

// y[i0][i1]...[k] = a[i0][i1]...[k] o b[i0][i1]...[k], y contiguous. Sizes and strides have one entry for each of the
// outer axes; along the last, of `length` elements, a is contiguous and b is contiguous too, or one value.
struct BinaryTensors {
    BinaryOperation operation = BinaryOperation::add;
    IntType type = IntType::u8;
    Quantized a, b;
    void* y = nullptr;
    float scale = 1;
    int32_t zero_point = 0;
    bool relu = false;
    std::vector<int64_t> sizes, a_strides, b_strides;
    int64_t length = 0;
    bool b_is_one = false;
};

// Whether a fixed_add has factors for these scales: their ratios to that of the sum are at least 2^-14, and the larger
// is within [2^-10, 2^8).
bool fits_fixed_add(float a_scale, float b_scale, float scale);

// What kernels take for them, without addresses.
BinaryArgs binary_args(const BinaryTensors& tensors);

// Throws std::invalid_argument where a type or a number of axes is not as described above.
void binary(const BinaryTensors& tensors);

}  // namespace zeropoint
