// float_gemm for any vector type V of simd/.
#pragma once

#include "kernels/float_gemm/float_gemm.h"

namespace zeropoint {
namespace {

// kRows rows times kPanels neighbouring panels: enough sums to hide how long a multiplication takes, few enough for
// the registers.
template <class V, int kRows, int kPanels>
__attribute__((noinline)) void float_gemm_tile(const FloatGemmArgs& a, int64_t row, int64_t panel) {
    constexpr int kEach = static_cast<int>(kFloatPanel) / V::W, kVectors = kPanels * kEach;
    using F = typename V::F;
    F sum[kRows][kVectors];
    float* y = a.y + row * a.y_stride + panel * kFloatPanel;
    for (int i = 0; i < kRows; ++i)
        for (int j = 0; j < kVectors; ++j)
            sum[i][j] = a.resume            ? V::load(y + i * a.y_stride + j * V::W)
                        : a.bias != nullptr ? V::load(a.bias + panel * kFloatPanel + j * V::W)
                                            : V::set(0.0f);
    const float* x = a.x + row * a.x_stride;
    const float* w = a.panels + panel * a.panel_stride;
    const int64_t stride = a.x_stride, next = a.panel_stride, depth = a.depth;
    for (int64_t k = 0; k < depth; ++k, w += kFloatPanel) {
        F weights[kVectors];
        for (int j = 0; j < kVectors; ++j) weights[j] = V::load(w + j / kEach * next + j % kEach * V::W);
#pragma GCC unroll 6
        for (int i = 0; i < kRows; ++i) {
            const F value = V::set(x[i * stride + k]);
            for (int j = 0; j < kVectors; ++j) sum[i][j] = V::fma(value, weights[j], sum[i][j]);
        }
    }
    for (int i = 0; i < kRows; ++i)
        for (int j = 0; j < kVectors; ++j) V::store(y + i * a.y_stride + j * V::W, sum[i][j]);
}

// The rows from `row` on, fewer than a tile of 6.
template <class V, int kPanels>
void float_gemm_rest(const FloatGemmArgs& a, int64_t row, int64_t panel) {
    switch (a.rows - row) {
        case 1: return float_gemm_tile<V, 1, kPanels>(a, row, panel);
        case 2: return float_gemm_tile<V, 2, kPanels>(a, row, panel);
        case 3: return float_gemm_tile<V, 3, kPanels>(a, row, panel);
        case 4: return float_gemm_tile<V, 4, kPanels>(a, row, panel);
        case 5: return float_gemm_tile<V, 5, kPanels>(a, row, panel);
        default: return;
    }
}

// A panel stays in the cache while all rows pass it.
template <class V, int kPanels>
void float_gemm_panels(const FloatGemmArgs& a, int64_t panel) {
    constexpr int64_t kTile = 6;
    int64_t row = 0;
    for (; row + kTile <= a.rows; row += kTile) float_gemm_tile<V, kTile, kPanels>(a, row, panel);
    float_gemm_rest<V, kPanels>(a, row, panel);
}

template <class V>
void float_gemm_with(const FloatGemmArgs& a, int64_t begin, int64_t end) {
    constexpr int kWide = V::W / 8 > 1 ? V::W / 8 : 1;  // a panel is two vectors of eight
    int64_t p = begin;
    if (a.rows == 1)
        for (; p + 4 * kWide <= end; p += 4 * kWide) float_gemm_tile<V, 1, 4 * kWide>(a, 0, p);
    if (a.rows == 2)
        for (; p + 2 * kWide <= end; p += 2 * kWide) float_gemm_tile<V, 2, 2 * kWide>(a, 0, p);
    for (; p + kWide <= end; p += kWide) float_gemm_panels<V, kWide>(a, p);
    for (; p < end; ++p) float_gemm_panels<V, 1>(a, p);
}

}  // namespace
}  // namespace zeropoint
