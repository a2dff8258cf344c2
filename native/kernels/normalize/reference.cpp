// The specification of normalize, one element at a time. It is never optimized.
#include "kernels/normalize/normalize.h"
#include "kernels/simd/fused.h"

#include <cmath>

namespace zeropoint {
namespace {

float value(const NormalizeArgs& a, int64_t row, int64_t i, float q) {
    const int64_t r = row * a.step, e = row / a.set_rows * a.length + i;
    switch (a.by_row) {
        case ByRow::all: return fused(q - a.center[r], a.weight[r], a.bias[r]);
        case ByRow::center:
            return fused((q - a.center[r]) * (a.factor != nullptr ? a.factor[r] : 1.0f), a.weight[i], a.bias[i]);
        default: return fused(q - a.center[e], a.weight[e], a.bias[e]);
    }
}

template <class T>
void run(const NormalizeArgs& a, int64_t begin, int64_t end) {
    const float zero_point = static_cast<float>(a.zero_point), lo = static_cast<float>(a.lo),
                hi = static_cast<float>(a.hi);
    for (int64_t row = begin; row < end; ++row)
        for (int64_t i = 0; i < a.length; ++i) {
            const int64_t at = row * a.length + i;
            const float v = value(a, row, i, static_cast<float>(static_cast<const T*>(a.x)[at])) * a.inverse;
            float y = a.joined ? std::nearbyint(v + zero_point) : std::nearbyint(v) + zero_point;
            y = y < hi ? y : hi;
            y = y < lo ? lo : y;
            static_cast<T*>(a.y)[at] = static_cast<T>(y);
        }
}

}  // namespace

void normalize_reference(const NormalizeArgs& a, int64_t begin, int64_t end) {
    if (a.type == IntType::u8) return run<uint8_t>(a, begin, end);
    return run<int8_t>(a, begin, end);
}

}  // namespace zeropoint
