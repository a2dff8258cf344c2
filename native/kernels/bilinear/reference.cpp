// The specification of bilinear, one element at a time. It is never optimized.
#include "kernels/bilinear/bilinear.h"
#include "kernels/simd/fused.h"

#include <cmath>

namespace zeropoint {
namespace {

float mix(bool fused, float first_weight, float first, float second_weight, float second) {
    if (fused) return zeropoint::fused(second_weight, second, first_weight * first);
    return first_weight * first + second_weight * second;
}

template <class T>
void run(const BilinearArgs& a, int64_t begin, int64_t end) {
    const float zero_point = static_cast<float>(a.zero_point);
    for (int64_t row = begin; row < end; ++row) {
        const T* x = static_cast<const T*>(a.x) + row / a.out_height * a.in_height * a.in_width * a.channels;
        T* y = static_cast<T*>(a.y) + row * a.out_width * a.channels;
        const Tap& h = a.rows[row % a.out_height];
        for (int64_t o = 0; o < a.out_width; ++o)
            for (int64_t c = 0; c < a.channels; ++c) {
                const Tap& w = a.columns[o];
                const auto at = [&](int64_t ih, int64_t iw) {
                    return static_cast<float>(x[(ih * a.in_width + iw) * a.channels + c]);
                };
                const auto across = [&](int64_t ih) {
                    return mix(a.fused, w.first_weight, at(ih, w.first), w.second_weight, at(ih, w.second));
                };
                float v = mix(a.fused, h.first_weight, across(h.first), h.second_weight, across(h.second));
                v = std::nearbyint((v - zero_point) + zero_point);
                v = v > a.qmax ? a.qmax : v;
                v = v < a.qmin ? a.qmin : v;
                y[o * a.channels + c] = static_cast<T>(v);
            }
    }
}

}  // namespace

void bilinear_reference(const BilinearArgs& a, int64_t begin, int64_t end, void*) {
    if (a.type == IntType::u8) return run<uint8_t>(a, begin, end);
    return run<int8_t>(a, begin, end);
}

}  // namespace zeropoint
