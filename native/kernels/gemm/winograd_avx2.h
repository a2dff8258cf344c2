// Winograd's transforms around the inner loop of gemm. Weights stay as gemm stores them and are transformed for each
// panel and strip: that takes less time than reading what would be four times as large.
#pragma once

#include "kernels/gemm/avx2.h"
#include "kernels/gemm/epilogue.h"
#include "kernels/gemm/winograd.h"
#include "kernels/simd/avx2.h"

namespace zeropoint {
namespace {

inline __m256i add16(__m256i a, __m256i b) { return _mm256_add_epi16(a, b); }
inline __m256i sub16(__m256i a, __m256i b) { return _mm256_sub_epi16(a, b); }
inline __m256i add32(__m256i a, __m256i b) { return _mm256_add_epi32(a, b); }
inline __m256i sub32(__m256i a, __m256i b) { return _mm256_sub_epi32(a, b); }

// B' d B of one tile and 16 channels: from 4 x 4 pixels to 16 places `stride` apart.
inline void transform_tile(const int16_t* x, int64_t line, int64_t channels, int64_t stride, int16_t* to) {
    __m256i t[4][4];
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
        __m256i d[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i)
            d[i] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + i * line + k * channels));
        t[0][k] = sub16(d[0], d[2]);
        t[1][k] = add16(d[1], d[2]);
        t[2][k] = sub16(d[2], d[1]);
        t[3][k] = sub16(d[1], d[3]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        const __m256i v[4] = {sub16(t[i][0], t[i][2]), add16(t[i][1], t[i][2]), sub16(t[i][2], t[i][1]),
                              sub16(t[i][1], t[i][3])};
#pragma GCC unroll 4
        for (int k = 0; k < 4; ++k) _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + (4 * i + k) * stride), v[k]);
    }
}

inline void winograd_transform(const WinogradArgs& a) {
    const int64_t stride = WinogradArgs::inputs_stride(a.tiles(), a.channels);
    int16_t* to = a.inputs;
    for (int64_t i = 0; i < a.tile_lines; ++i)
        for (int64_t j = 0; j < a.tile_columns; ++j, to += a.channels) {
            const int16_t* x = a.x + 2 * i * a.line + 2 * j * a.channels;
            for (int64_t c = 0; c < a.channels; c += kWinogradMultiple)
                transform_tile(x + c, a.line, a.channels, stride, to + c);
        }
}

// G g for three vectors.
inline void transform_weights(__m256i g0, __m256i g1, __m256i g2, __m256i* to) {
    const __m256i ends = add16(g0, g2);
    to[0] = add16(g0, g0);
    to[1] = add16(ends, g1);
    to[2] = sub16(ends, g1);
    to[3] = add16(g2, g2);
}

// G g G' of a panel.
inline void transform_panel(const int8_t* panel, int64_t channels, const int32_t* w_zero_point, int16_t* to) {
    const PairZeroPoints zero(w_zero_point);
    const int64_t stride = WinogradArgs::weights_stride(channels), tap = channels * kPanel;
    for (int64_t c = 0; c < channels; c += 2, panel += 2 * kPanel, to += 2 * kPanel)
        for (int j = 0; j < 2; ++j) {
            __m256i t[3][4];
#pragma GCC unroll 3
            for (int k = 0; k < 3; ++k) {
                __m256i g[3];
#pragma GCC unroll 3
                for (int i = 0; i < 3; ++i)
                    g[i] = sub16(load_weights(panel + (3 * i + k) * tap + j * kPanel), zero.half[j]);
                transform_weights(g[0], g[1], g[2], t[k]);
            }
#pragma GCC unroll 4
            for (int i = 0; i < 4; ++i) {
                __m256i u[4];
                transform_weights(t[0][i], t[1][i], t[2][i], u);
#pragma GCC unroll 4
                for (int k = 0; k < 4; ++k)
                    _mm256_store_si256(reinterpret_cast<__m256i*>(to + (4 * i + k) * stride + j * kPanel), u[k]);
            }
        }
}

// A' m A / 4 for eight output channels of a tile: the sums of its pixels, to acc[4][16].
inline void transform_sums(const int32_t* m, int64_t stride, int32_t* acc) {
    __m256i t[2][4];
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
        __m256i v[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i)
            v[i] = _mm256_load_si256(reinterpret_cast<const __m256i*>(m + (4 * i + k) * stride));
        t[0][k] = add32(add32(v[0], v[1]), v[2]);
        t[1][k] = sub32(sub32(v[1], v[2]), v[3]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
        __m256i* to = reinterpret_cast<__m256i*>(acc + 2 * i * kPanel);
        _mm256_store_si256(to, _mm256_srai_epi32(add32(add32(t[i][0], t[i][1]), t[i][2]), 2));
        _mm256_store_si256(to + 2, _mm256_srai_epi32(sub32(sub32(t[i][1], t[i][2]), t[i][3]), 2));
    }
}

inline void winograd_multiply(const WinogradArgs& a, int64_t begin, int64_t end) {
    constexpr int64_t kAtOnce = 16;  // tiles whose epilogue is one call
    const int64_t tiles = a.tiles(), panel_size = 9 * a.channels * kPanel, tap = 0;
    const int64_t inputs = WinogradArgs::inputs_stride(tiles, a.channels),
                  weights = WinogradArgs::weights_stride(a.channels), sums = WinogradArgs::sums_stride(tiles);
    const Depth depth{0, 1, 0, a.channels / 2};
    alignas(64) int32_t acc[(kAtOnce + 1) * kTilePixels * kPanel];
    for (int64_t p = begin; p < end; ++p) {
        transform_panel(a.panels + p * panel_size, a.channels,
                        a.w_zero_point != nullptr ? a.w_zero_point + p * kPanel : nullptr, a.weights);
        for (int64_t place = 0; place < kWinogradProducts; ++place)
            accumulate(a.inputs + place * inputs, a.rows, tiles, &tap, depth,
                       static_cast<const int16_t*>(a.weights + place * weights), Start{kNoSums, 0},
                       ToSums{a.sums + place * sums});
        const PanelEpilogue<Avx2> finish(a.epilogue, a.y, p, a.n - p * kPanel);
        int64_t y_rows[kAtOnce * kTilePixels], pixels = 0;
        for (int64_t tile = 0; tile < tiles; ++tile) {
            int32_t* to = acc + pixels * kPanel;
            for (int j = 0; j < 2; ++j) transform_sums(a.sums + tile * kPanel + j * 8, sums, to + j * 8);
            const int64_t* at = a.y_rows + tile * kTilePixels;
            for (int64_t i = 0; i < kTilePixels; ++i) {
                if (at[i] == kNoPixel) continue;
                if (to + i * kPanel != acc + pixels * kPanel)
                    std::memcpy(acc + pixels * kPanel, to + i * kPanel, kPanel * sizeof(int32_t));
                y_rows[pixels++] = at[i];
            }
            if (pixels + kTilePixels > kAtOnce * kTilePixels || tile + 1 == tiles) {
                finish(acc, pixels, y_rows);
                pixels = 0;
            }
        }
    }
}

}  // namespace
}  // namespace zeropoint
