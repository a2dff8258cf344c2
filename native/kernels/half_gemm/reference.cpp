// The specification of half_gemm, one element at a time. It is never optimized.
#include "kernels/half_gemm/half_gemm.h"
#include "kernels/simd/fused.h"

#include <cmath>
#include <limits>

namespace zeropoint {
namespace {

float value_of(uint16_t half) {
    const int exponent = half >> 10 & 31, fraction = half & 1023;
    float magnitude =
        std::ldexp(static_cast<float>(exponent == 0 ? fraction : fraction + 1024), exponent == 0 ? -24 : exponent - 25);
    if (exponent == 31)
        magnitude = fraction == 0 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
    return half >> 15 != 0 ? -magnitude : magnitude;
}

}  // namespace

void half_gemm_reference(const HalfGemmArgs& a, int64_t begin, int64_t end) {
    for (int64_t m = 0; m < a.rows; ++m)
        for (int64_t n = begin * kHalfPanel; n < end * kHalfPanel; ++n) {
            const uint16_t* w = a.panels + n / kHalfPanel * a.depth * kHalfPanel + n % kHalfPanel;
            float acc = 0;
            for (int64_t k = 0; k < a.depth; ++k)
                acc = fused(a.x[m * a.x_stride + k], value_of(w[k * kHalfPanel]), acc);
            a.y[m * a.y_stride + n] = acc + a.bias[n];
        }
}

}  // namespace zeropoint
