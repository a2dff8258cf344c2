// The specification of binary, one element at a time. It is never optimized.
#include "kernels/binary/binary.h"
#include "kernels/simd/fused.h"

#include <cmath>

namespace zeropoint {
namespace {

// v / 2^shift, to nearest, halves away from zero.
int64_t shifted(int64_t v, int32_t shift) {
    const int64_t half = int64_t{1} << (shift - 1), size = v < 0 ? -v : v;
    const int64_t rounded = (size + half) >> shift;
    return v < 0 ? -rounded : rounded;
}

template <class T>
void fixed_sum(const BinaryArgs& p, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
        const int64_t a = static_cast<const T*>(p.a)[i] - static_cast<int64_t>(p.a_offset);
        const int64_t b = static_cast<const T*>(p.b)[p.b_is_one ? 0 : i] - static_cast<int64_t>(p.b_offset);
        int64_t v = shifted(a * p.a_factor + b * p.b_factor, p.shift);
        v = v > static_cast<int64_t>(p.high) ? static_cast<int64_t>(p.high) : v;
        v = v < static_cast<int64_t>(p.low) ? static_cast<int64_t>(p.low) : v;
        static_cast<T*>(p.y)[i] = static_cast<T>(v + p.zero_point);
    }
}

template <class T>
void binary_of(const BinaryArgs& p, int64_t begin, int64_t end) {
    if (p.operation == BinaryOperation::fixed_add) return fixed_sum<T>(p, begin, end);
    for (int64_t i = begin; i < end; ++i) {
        const float a = static_cast<float>(static_cast<const T*>(p.a)[i]);
        const float b = static_cast<float>(static_cast<const T*>(p.b)[p.b_is_one ? 0 : i]);
        float v;
        if (p.operation == BinaryOperation::add) {
            const float x = fused(a, p.a_scale, p.a_offset), y = fused(b, p.b_scale, p.b_offset);
            v = x + y;
        } else {
            v = (a - p.a_offset) * (b - p.b_offset);
        }
        v = v * p.scale;
        v = v < p.high ? v : p.high;
        v = v < p.low ? p.low : v;
        static_cast<T*>(p.y)[i] = static_cast<T>(static_cast<int32_t>(std::nearbyint(v)) + p.zero_point);
    }
}

}  // namespace

void binary_reference(const BinaryArgs& p, int64_t begin, int64_t end) {
    if (p.type == IntType::u8) return binary_of<uint8_t>(p, begin, end);
    return binary_of<int8_t>(p, begin, end);
}

}  // namespace zeropoint
