// The specification of softmax, one element at a time. It is never optimized.
#include "kernels/softmax/softmax.h"
#include "kernels/simd/fused.h"

#include <cmath>

namespace zeropoint {
namespace {

template <class T>
void run(const SoftmaxArgs& a, int64_t begin, int64_t end) {
    const float zero_point = static_cast<float>(a.zero_point), lo = static_cast<float>(a.lo),
                hi = static_cast<float>(a.hi);
    for (int64_t row = begin; row < end; ++row) {
        const T* x = reinterpret_cast<const T*>(a.x) + row * a.length;
        T* y = reinterpret_cast<T*>(a.y) + row * a.length;
        int largest = x[0];
        for (int64_t i = 0; i < a.length; ++i) largest = x[i] > largest ? x[i] : largest;
        float lanes[SoftmaxArgs::kLanes] = {};
        for (int64_t i = 0; i < a.length; ++i) lanes[i % SoftmaxArgs::kLanes] += a.table[255 - (largest - x[i])];
        for (int half = SoftmaxArgs::kLanes / 2; half > 0; half /= 2)
            for (int k = 0; k < half; ++k) lanes[k] += lanes[k + half];
        const float factor = 1.0f / lanes[0];
        for (int64_t i = 0; i < a.length; ++i) {
            float v = std::nearbyint(fused(a.table[255 - (largest - x[i])] * factor, a.inverse, zero_point));
            v = v < hi ? v : hi;
            v = v < lo ? lo : v;
            y[i] = static_cast<T>(v);
        }
    }
}

}  // namespace

void softmax_reference(const SoftmaxArgs& a, int64_t begin, int64_t end, float*) {
    if (a.type == IntType::u8) return run<uint8_t>(a, begin, end);
    return run<int8_t>(a, begin, end);
}

}  // namespace zeropoint
