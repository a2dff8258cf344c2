#include "operators/binary.h"

#include "cpu/machine.h"
#include "cpu/memory.h"
#include "cpu/threads.h"
#include "kernels/registry.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace zeropoint {
namespace {

constexpr int64_t kGrain = worth_elements(2);

// Both ratios as multiples of one power of two, the larger with 22 bits.
void put_factors(const BinaryTensors& t, BinaryArgs& p) {
    if (!fits_fixed_add(t.a.scale, t.b.scale, t.scale))
        throw std::invalid_argument("binary: the scales of a sum in fixed point are too far apart");
    const float a = t.a.scale / t.scale, b = t.b.scale / t.scale;
    p.shift = 21 - std::ilogb(std::max(a, b));
    p.a_factor = static_cast<int32_t>(std::nearbyint(std::ldexp(a, p.shift)));
    p.b_factor = static_cast<int32_t>(std::nearbyint(std::ldexp(b, p.shift)));
}

}  // namespace

bool fits_fixed_add(float a_scale, float b_scale, float scale) {
    const float a = a_scale / scale, b = b_scale / scale;
    const bool both = a >= 0x1p-14f && b >= 0x1p-14f && a < 0x1p8f && b < 0x1p8f;  // not with NaN
    return both && (a >= 0x1p-10f || b >= 0x1p-10f);
}

BinaryArgs binary_args(const BinaryTensors& t) {
    BinaryArgs p;
    p.operation = t.operation;
    p.type = t.type;
    p.b_is_one = t.b_is_one;
    const float a_zero = static_cast<float>(t.a.zero_point), b_zero = static_cast<float>(t.b.zero_point);
    const float inverse = 1.0f / t.scale;
    if (t.operation == BinaryOperation::add) {
        p.a_scale = t.a.scale;
        p.a_offset = -(t.a.scale * a_zero);
        p.b_scale = t.b.scale;
        p.b_offset = -(t.b.scale * b_zero);
        p.scale = inverse;
    } else {
        p.a_offset = a_zero;
        p.b_offset = b_zero;
    }
    if (t.operation == BinaryOperation::multiply) {
        const float product = t.a.scale * t.b.scale;
        p.scale = product * inverse;
    }
    if (t.operation == BinaryOperation::fixed_add) put_factors(t, p);
    const int32_t qmin = t.type == IntType::u8 ? 0 : -128;
    const int32_t low = t.relu ? std::clamp(t.zero_point, qmin, qmin + 255) : qmin;
    p.low = static_cast<float>(low - t.zero_point);
    p.high = static_cast<float>(qmin + 255 - t.zero_point);
    p.zero_point = t.zero_point;
    return p;
}

void binary(const BinaryTensors& t) {
    if (t.type != IntType::u8 && t.type != IntType::s8) throw std::invalid_argument("binary: tensors must have 8 bits");
    if (t.operation < BinaryOperation::add || t.operation > BinaryOperation::fixed_add)
        throw std::invalid_argument("binary: no such operation");
    if (t.a_strides.size() != t.sizes.size() || t.b_strides.size() != t.sizes.size())
        throw std::invalid_argument("binary: sizes and strides must have one entry for each outer axis");
    int64_t rows = 1;
    for (int64_t n : t.sizes) rows *= n;
    const int64_t total = rows * t.length;
    if (total == 0) return;
    const BinaryArgs common = binary_args(t);
    const BinaryFn kernel = kernels().binary;
    if (t.y != t.a.data && t.y != t.b.data) prepare_output(t.y, static_cast<size_t>(total));

    parallel_for(total, kGrain, [&](int64_t begin, int64_t end) {
        BinaryArgs p = common;
        for (int64_t at = begin; at < end;) {
            int64_t row = at / t.length, a_start = 0, b_start = 0;
            const int64_t first = at - row * t.length, last = std::min(t.length, first + end - at);
            p.y = static_cast<uint8_t*>(t.y) + row * t.length;
            for (size_t axis = t.sizes.size(); axis-- > 0; row /= t.sizes[axis]) {
                const int64_t index = row % t.sizes[axis];
                a_start += index * t.a_strides[axis];
                b_start += index * t.b_strides[axis];
            }
            p.a = static_cast<const uint8_t*>(t.a.data) + a_start;
            p.b = static_cast<const uint8_t*>(t.b.data) + b_start;
            kernel(p, first, last);
            at += last - first;
        }
    });
}

}  // namespace zeropoint
