// Winograd's transforms around the inner loop of gemm, on 256-bit vectors. Weights stay as gemm stores them and are
// transformed for each panel and block of tiles: that takes less time than reading what would be eight times as large.
#pragma once

#include "kernels/gemm/avx2.h"
#include "kernels/gemm/epilogue.h"
#include "kernels/gemm/winograd_transforms.h"
#include "kernels/simd/avx2.h"

namespace zeropoint {
namespace {

using Words256 = int16_t __attribute__((vector_size(32)));
using Dwords256 = uint32_t __attribute__((vector_size(32)));

constexpr int64_t kAtOnce256 = 16;  // channels

// What a kernel of centered activations has, as words: 16 activations, and the weights of channels c, c + 1 and 8 of a
// panel's output channels (the first or the second half). The layout is {2, 2}.
struct CenteredWords {
    using Value = int16_t;
    static __m256i activations(const int16_t* x) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x)); }
    static __m256i weights(const int8_t* tap, int64_t c, int half) {
        return load_weights(tap + c * kPanel + half * kPanel);
    }
    static int32_t least(int32_t zero_point) { return -zero_point; }  // of the activations
};
// The same of shifted activations and the layout {4, 4}.
struct ShiftedWords {
    using Value = uint8_t;
    static __m256i activations(const uint8_t* x) {
        return _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x)));
    }
    static __m256i weights(const int8_t* tap, int64_t c, int half) {
        // Of the four channels of an output channel, the first two to the even places.
        const __m256i apart = _mm256_setr_epi8(0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15,  //
                                               0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15);
        const __m256i four = _mm256_shuffle_epi8(
            _mm256_load_si256(reinterpret_cast<const __m256i*>(tap + c / 4 * 4 * kPanel + half * 2 * kPanel)), apart);
        return _mm256_srai_epi16(c % 4 == 0 ? _mm256_slli_epi16(four, 8) : four, 8);
    }
    static int32_t least(int32_t) { return 0; }
};

// B' d B of the tiles of a line and 16 channels. Columns are shared by neighbouring tiles: the last eight are kept.
template <class Words>
void transform_line_256(const typename Words::Value* x, int64_t line, int64_t channels, int64_t tiles, int64_t stride,
                        int16_t* to) {
    constexpr int64_t kColumns = 8;
    alignas(32) Words256 columns[kColumns][6];
    for (int64_t tile = 0; tile < tiles; ++tile, to += channels) {
        for (int64_t k = tile == 0 ? 0 : kWinogradReach - kWinogradTile; k < kWinogradReach; ++k) {
            const int64_t column = tile * kWinogradTile + k;
            Words256 d[6];
#pragma GCC unroll 6
            for (int i = 0; i < 6; ++i)
                d[i] = reinterpret_cast<Words256>(Words::activations(x + i * line + column * channels));
            transform_inputs(d, columns[column % kColumns]);
        }
#pragma GCC unroll 6
        for (int i = 0; i < 6; ++i) {
            Words256 d[6], v[6];
#pragma GCC unroll 6
            for (int k = 0; k < 6; ++k) d[k] = columns[(tile * kWinogradTile + k) % kColumns][i];
            transform_inputs(d, v);
#pragma GCC unroll 6
            for (int k = 0; k < 6; ++k)
                _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + (6 * i + k) * stride),
                                    reinterpret_cast<__m256i>(v[k]));
        }
    }
}

template <class Words>
void winograd_transform(const WinogradArgs& a, const WinogradStrip& s) {
    const int64_t stride = WinogradArgs::inputs_stride(a.tiles, a.channels);
    for (int64_t i = 0; i < s.tile_lines; ++i) {
        const auto* x = static_cast<const typename Words::Value*>(s.x) + i * kWinogradTile * s.line;
        int16_t* const to = a.inputs + (s.first + i * s.tile_columns) * a.channels;
        for (int64_t c = 0; c < a.channels; c += kAtOnce256)
            transform_line_256<Words>(x + c, s.line, a.channels, s.tile_columns, stride, to + c);
    }
}

// G g G' of a panel.
template <class Words>
void transform_panel(const int8_t* panel, int64_t channels, const int32_t* w_zero_point, int16_t* to) {
    const PairZeroPoints zero(w_zero_point);
    const int64_t stride = WinogradArgs::weights_stride(channels), tap = channels * kPanel;
    for (int64_t c = 0; c < channels; c += 2, to += 2 * kPanel)
        for (int half = 0; half < 2; ++half) {
            Words256 t[3][6];
#pragma GCC unroll 3
            for (int k = 0; k < 3; ++k) {
                Words256 g[3];
#pragma GCC unroll 3
                for (int i = 0; i < 3; ++i)
                    g[i] = reinterpret_cast<Words256>(
                        _mm256_sub_epi16(Words::weights(panel + (3 * i + k) * tap, c, half), zero.half[half]));
                transform_weights(g, t[k]);
            }
#pragma GCC unroll 6
            for (int i = 0; i < 6; ++i) {
                const Words256 g[3] = {t[0][i], t[1][i], t[2][i]};
                Words256 u[6];
                transform_weights(g, u);
#pragma GCC unroll 6
                for (int k = 0; k < 6; ++k)
                    _mm256_store_si256(reinterpret_cast<__m256i*>(to + (6 * i + k) * stride + half * kPanel),
                                       reinterpret_cast<__m256i>(u[k]));
            }
        }
}

// A' m A / 576 for eight output channels of a tile, without the middle of their window: to acc[16][16].
inline void transform_tile_sums(const int32_t* m, int64_t stride, Dwords256 middle64, Dwords256 middle, int32_t* acc) {
    Dwords256 t[6][4];
#pragma GCC unroll 6
    for (int k = 0; k < 6; ++k) {
        Dwords256 v[6];
#pragma GCC unroll 6
        for (int i = 0; i < 6; ++i)
            v[i] = reinterpret_cast<Dwords256>(
                _mm256_load_si256(reinterpret_cast<const __m256i*>(m + (6 * i + k) * stride)));
        transform_sums(v, t[k]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        const Dwords256 v[6] = {t[0][i], t[1][i], t[2][i], t[3][i], t[4][i], t[5][i]};
        Dwords256 y[4];
        transform_sums(v, y);
#pragma GCC unroll 4
        for (int k = 0; k < 4; ++k) {
            const __m256i exact = _mm256_srai_epi32(reinterpret_cast<__m256i>(y[k] * kInverseOf9 - middle64), 6);
            _mm256_store_si256(reinterpret_cast<__m256i*>(acc + (4 * i + k) * kPanel),
                               reinterpret_cast<__m256i>(reinterpret_cast<Dwords256>(exact) + middle));
        }
    }
}

template <class Words>
void winograd_multiply(const WinogradArgs& a, int64_t begin, int64_t end) {
    constexpr int64_t kTogether = 4;  // tiles whose epilogue is one call
    const int64_t panel_size = 9 * a.channels * kPanel, tap = 0;
    const int64_t inputs = WinogradArgs::inputs_stride(a.tiles, a.channels),
                  weights = WinogradArgs::weights_stride(a.channels), sums = WinogradArgs::kSumsStride;
    const Depth depth{0, 1, 0, a.channels / 2};
    alignas(64) int32_t acc[(kTogether + 1) * kTilePixels * kPanel];
    int64_t rows[WinogradArgs::kSumTiles];
    for (int64_t i = 0; i < WinogradArgs::kSumTiles; ++i) rows[i] = i * a.channels;
    for (int64_t p = begin; p < end; ++p) {
        const int32_t* const w_zero_point = a.w_zero_point != nullptr ? a.w_zero_point + p * kPanel : nullptr;
        transform_panel<Words>(a.panels + p * panel_size, a.channels, w_zero_point, a.weights);
        // The middle of the window is that of the least and the greatest input times the sum of the weights.
        alignas(32) uint32_t middle[kPanel];
        for (int i = 0; i < kPanel; ++i) {
            int32_t weight_sum = a.w_sums[p * kPanel + i];
            if (w_zero_point != nullptr) weight_sum -= static_cast<int32_t>(9 * a.channels) * w_zero_point[i];
            middle[i] = static_cast<uint32_t>((255 + 2 * Words::least(a.x_zero_point)) * weight_sum >> 1);
        }
        const PanelEpilogue<Avx2> finish(a.epilogue, a.y, p, a.n - p * kPanel);
        a.in_parts([&](int64_t first, int64_t past) {
            for (int64_t place = 0; place < kWinogradProducts; ++place)
                accumulate(a.inputs + place * inputs + first * a.channels, rows, past - first, &tap, depth,
                           static_cast<const int16_t*>(a.weights + place * weights), Start{kNoSums, 0},
                           ToSums{a.sums + place * sums});
            int64_t y_rows[kTogether * kTilePixels], pixels = 0;
            for (int64_t tile = first; tile < past; ++tile) {
                int32_t* to = acc + pixels * kPanel;
                for (int j = 0; j < 2; ++j) {
                    const Dwords256 half = reinterpret_cast<Dwords256>(
                        _mm256_load_si256(reinterpret_cast<const __m256i*>(middle + j * 8)));
                    transform_tile_sums(a.sums + (tile - first) * kPanel + j * 8, sums, half << 6, half, to + j * 8);
                }
                const int64_t* at = a.y_rows + tile * kTilePixels;
                for (int64_t i = 0; i < kTilePixels; ++i) {
                    if (at[i] == kNoPixel) continue;
                    if (to + i * kPanel != acc + pixels * kPanel)
                        std::memcpy(acc + pixels * kPanel, to + i * kPanel, kPanel * sizeof(int32_t));
                    y_rows[pixels++] = at[i];
                }
                if (pixels + kTilePixels > kTogether * kTilePixels || tile + 1 == past) {
                    finish(acc, pixels, y_rows);
                    pixels = 0;
                }
            }
        });
    }
}

}  // namespace
}  // namespace zeropoint
