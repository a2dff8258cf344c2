// half_gemm for any vector type V of simd/.
#pragma once

#include "kernels/half_gemm/half_gemm.h"

namespace zeropoint {
namespace {

// kRows rows times kPanels neighbouring panels: enough sums to hide how long a multiplication takes, few enough for
// the registers.
template <class V, int kRows, int kPanels>
__attribute__((noinline)) void half_gemm_tile(const HalfGemmArgs& a, int64_t row, int64_t panel) {
    constexpr int kVectors = kPanels * static_cast<int>(kHalfPanel) / V::W;
    constexpr int kEach = static_cast<int>(kHalfPanel) / V::W;
    using F = typename V::F;
    F sum[kRows][kVectors];
    for (auto& r : sum)
        for (F& s : r) s = V::set(0.0f);
    const float* x = a.x + row * a.x_stride;
    const int64_t size = a.depth * kHalfPanel;
    const uint16_t* w = a.panels + panel * size;
    for (int64_t k = 0; k < a.depth; ++k, w += kHalfPanel) {
        F weights[kVectors];
        for (int j = 0; j < kVectors; ++j) weights[j] = V::load_half(w + j / kEach * size + j % kEach * V::W);
#pragma GCC unroll 6
        for (int i = 0; i < kRows; ++i) {
            const F value = V::set(x[i * a.x_stride + k]);
            for (int j = 0; j < kVectors; ++j) sum[i][j] = V::fma(value, weights[j], sum[i][j]);
        }
    }
    for (int i = 0; i < kRows; ++i) {
        float* y = a.y + (row + i) * a.y_stride + panel * kHalfPanel;
        for (int j = 0; j < kVectors; ++j) {
            sum[i][j] = V::add(sum[i][j], V::load(a.bias + panel * kHalfPanel + j * V::W));
            V::store(y + j * V::W, sum[i][j]);
        }
    }
}

// All the panels for kRows rows.
template <class V, int kRows>
void half_gemm_rows(const HalfGemmArgs& a, int64_t row, int64_t begin, int64_t end) {
    constexpr int kWide = V::W / 8;  // a panel is two vectors of eight
    constexpr int kPanels = (kRows == 1 ? 4 : kRows == 2 ? 2 : 1) * kWide;
    int64_t p = begin;
    for (; p + kPanels <= end; p += kPanels) half_gemm_tile<V, kRows, kPanels>(a, row, p);
    for (; p < end; ++p) half_gemm_tile<V, kRows, 1>(a, row, p);
}

template <class V>
void half_gemm_with(const HalfGemmArgs& a, int64_t begin, int64_t end) {
    constexpr int64_t kTile = 6;
    int64_t row = 0;
    for (; row + kTile <= a.rows; row += kTile) half_gemm_rows<V, kTile>(a, row, begin, end);
    switch (a.rows - row) {
        case 1: return half_gemm_rows<V, 1>(a, row, begin, end);
        case 2: return half_gemm_rows<V, 2>(a, row, begin, end);
        case 3: return half_gemm_rows<V, 3>(a, row, begin, end);
        case 4: return half_gemm_rows<V, 4>(a, row, begin, end);
        case 5: return half_gemm_rows<V, 5>(a, row, begin, end);
        default: return;
    }
}

}  // namespace
}  // namespace zeropoint
