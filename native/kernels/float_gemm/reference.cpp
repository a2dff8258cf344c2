// The specification of float_gemm, one element at a time. It is never optimized.
#include "kernels/float_gemm/float_gemm.h"
#include "kernels/simd/fused.h"

#include <cmath>

namespace zeropoint {

void float_gemm_reference(const FloatGemmArgs& a, int64_t begin, int64_t end) {
    for (int64_t m = 0; m < a.rows; ++m)
        for (int64_t n = begin * kFloatPanel; n < end * kFloatPanel; ++n) {
            const float* w = a.panels + n / kFloatPanel * a.panel_stride + n % kFloatPanel;
            float& y = a.y[m * a.y_stride + n];
            float acc = a.resume ? y : a.bias != nullptr ? a.bias[n] : 0.0f;
            for (int64_t k = 0; k < a.depth; ++k) acc = fused(a.x[m * a.x_stride + k], w[k * kFloatPanel], acc);
            y = acc;
        }
}

}  // namespace zeropoint
