// Winograd's transforms around products of 16 bits with vpdpwssd: half as many at once as vpdpbusd takes of 8 bits, and
// a quarter as many to take. (Not vpdpwssds, which saturates.) Weights stay as gemm stores them and are transformed for
// each panel and block of tiles: that takes as long as the products of three or four tiles, and what would be kept
// otherwise is eight times as large.
//
// Bytes become words without a shuffle: those at even places and those at odd places of a vector make one vector each.
// So the channels of a row of transformed inputs are in this order, for every 64 channels or what is left of them: 0,
// 2, 4, 6, ..., then 1, 3, 5, 7, ...; and those of the weights as well.
#pragma once

#include "kernels/gemm/epilogue_avx512.h"
#include "kernels/gemm/vnni.h"
#include "kernels/gemm/winograd_transforms.h"

namespace zeropoint {
namespace {

using Words512 = int16_t __attribute__((vector_size(64)));
using Dwords512 = uint32_t __attribute__((vector_size(64)));

constexpr int64_t kAtOnce512 = 64;  // channels
// On Zen 4, stage by stage, for 64 to 512 channels: inputs 12 to 14, weights 6.5 to 7.5, sums 26 to 28.
constexpr WinogradCosts kWinogradCostsVnni = {13, 7, 27, 2};

// B' d B of the tiles of a line and `count` channels, at most 64. Columns are shared by neighbouring tiles: the last
// eight are kept.
inline void transform_line_512(const uint8_t* x, int64_t line, int64_t channels, int64_t count, int64_t tiles,
                               int64_t stride, int16_t* to) {
    constexpr int64_t kColumns = 8;
    alignas(64) Words512 columns[kColumns][2][6];
    const bool whole = count == kAtOnce512;
    const __mmask64 bytes = whole ? ~__mmask64{0} : (__mmask64{1} << count) - 1;
    const __mmask32 words = static_cast<__mmask32>((uint64_t{1} << (count / 2)) - 1);
    for (int64_t tile = 0; tile < tiles; ++tile, to += channels) {
        for (int64_t k = tile == 0 ? 0 : kWinogradReach - kWinogradTile; k < kWinogradReach; ++k) {
            const int64_t column = tile * kWinogradTile + k;
            Words512 even[6], odd[6];
#pragma GCC unroll 6
            for (int i = 0; i < 6; ++i) {
                const uint8_t* const at = x + i * line + column * channels;
                const __m512i v = whole ? _mm512_loadu_si512(at) : _mm512_maskz_loadu_epi8(bytes, at);
                even[i] = reinterpret_cast<Words512>(_mm512_and_si512(v, _mm512_set1_epi16(0xFF)));
                odd[i] = reinterpret_cast<Words512>(_mm512_srli_epi16(v, 8));
            }
            transform_inputs(even, columns[column % kColumns][0]);
            transform_inputs(odd, columns[column % kColumns][1]);
        }
        for (int half = 0; half < 2; ++half)
#pragma GCC unroll 6
            for (int i = 0; i < 6; ++i) {
                Words512 d[6], v[6];
#pragma GCC unroll 6
                for (int k = 0; k < 6; ++k) d[k] = columns[(tile * kWinogradTile + k) % kColumns][half][i];
                transform_inputs(d, v);
                int16_t* const at = to + i * 6 * stride + half * (count / 2);
#pragma GCC unroll 6
                for (int k = 0; k < 6; ++k)
                    if (whole)
                        _mm512_storeu_si512(at + k * stride, reinterpret_cast<__m512i>(v[k]));
                    else
                        _mm512_mask_storeu_epi16(at + k * stride, words, reinterpret_cast<__m512i>(v[k]));
            }
    }
}

inline void winograd_transform_vnni(const WinogradArgs& a, const WinogradStrip& s) {
    const int64_t stride = WinogradArgs::inputs_stride(a.tiles, a.channels);
    for (int64_t i = 0; i < s.tile_lines; ++i) {
        const uint8_t* x = static_cast<const uint8_t*>(s.x) + i * kWinogradTile * s.line;
        int16_t* const to = a.inputs + (s.first + i * s.tile_columns) * a.channels;
        for (int64_t c = 0; c < a.channels; c += kAtOnce512) {
            const int64_t left = a.channels - c;
            transform_line_512(x + c, s.line, a.channels, left < kAtOnce512 ? left : kAtOnce512, s.tile_columns, stride,
                               to + c);
        }
    }
}

// G g G' of a panel.
inline void transform_panel_512(const WinogradArgs& a, const PanelLayout& layout, int64_t panel) {
    const int64_t panels = (a.n + kPanel - 1) / kPanel, size = 9 * a.channels * kPanel;
    const PanelLayout::Place place = layout.place(panel, panels, size);
    const int8_t* const from = a.panels + place.begin;
    const int64_t tap = a.channels / 4 * place.step, stride = WinogradArgs::weights_stride(a.channels);
    const __m512i zero_point =
        a.w_zero_point == nullptr ? _mm512_setzero_si512() : _mm512_loadu_si512(a.w_zero_point + panel * kPanel);
    const Words512 zero = reinterpret_cast<Words512>(
        _mm512_or_si512(_mm512_and_si512(zero_point, _mm512_set1_epi32(0xFFFF)), _mm512_slli_epi32(zero_point, 16)));
    for (int64_t c = 0; c < a.channels; c += kAtOnce512) {
        const int64_t left = a.channels - c, count = left < kAtOnce512 ? left : kAtOnce512;
        for (int64_t i = 0; i < count; i += 4)
            for (int64_t odd = 0; odd < 2; ++odd) {
                const int8_t* const w = from + (c + i) / 4 * place.step;
                Words512 t[3][6];
#pragma GCC unroll 3
                for (int k = 0; k < 3; ++k) {
                    Words512 g[3];
#pragma GCC unroll 3
                    for (int j = 0; j < 3; ++j) {
                        const __m512i v = _mm512_load_si512(w + (3 * j + k) * tap);
                        g[j] =
                            reinterpret_cast<Words512>(_mm512_srai_epi16(odd != 0 ? v : _mm512_slli_epi16(v, 8), 8)) -
                            zero;
                    }
                    transform_weights(g, t[k]);
                }
                int16_t* const to = a.weights + (c + odd * (count / 2) + i / 2) * kPanel;
#pragma GCC unroll 6
                for (int j = 0; j < 6; ++j) {
                    const Words512 g[3] = {t[0][j], t[1][j], t[2][j]};
                    Words512 u[6];
                    transform_weights(g, u);
#pragma GCC unroll 6
                    for (int k = 0; k < 6; ++k)
                        _mm512_store_si512(to + (6 * j + k) * stride, reinterpret_cast<__m512i>(u[k]));
                }
            }
    }
}

// kRows rows of transformed inputs, `step` bytes apart, times the weights of a panel at one place.
template <int kRows>
__attribute__((noinline)) void winograd_products_512(const int16_t* inputs, int64_t step, int64_t pairs,
                                                     const int16_t* weights, int64_t tiles, int32_t* sums) {
    constexpr int kSegment = 7, kSegments = (kRows + kSegment - 1) / kSegment;
    const int64_t s3 = 3 * step, s5 = 5 * step;
    const uint8_t* x = reinterpret_cast<const uint8_t*>(inputs);
    for (; tiles > 0; tiles -= kRows, x += kRows * step, sums += kRows * kPanel) {
        Sums sum[kRows] = {};
        const uint8_t* at[kSegments];
#pragma GCC unroll 4
        for (int g = 0; g < kSegments; ++g) at[g] = x + g * kSegment * step;
        const int16_t* w = weights;
        for (int64_t c = 0; c < pairs; ++c, w += 2 * kPanel) {
            const __m512i weight = _mm512_load_si512(w);
#pragma GCC unroll 16
            for (int i = 0; i < kRows; ++i) {
                const __m512i v = _mm512_broadcastd_epi32(
                    _mm_loadu_si32(row_of_segment(at[i / kSegment], i % kSegment, step, s3, s5)));
                sum[i] = reinterpret_cast<Sums>(_mm512_dpwssd_epi32(reinterpret_cast<__m512i>(sum[i]), v, weight));
            }
#pragma GCC unroll 4
            for (int g = 0; g < kSegments; ++g) {
                at[g] += 4;
                __asm__("" : "+r"(at[g]));  // one pointer for each segment: compilers would make one for each row
            }
        }
#pragma GCC unroll 16
        for (int i = 0; i < kRows; ++i) _mm512_store_si512(sums + i * kPanel, reinterpret_cast<__m512i>(sum[i]));
    }
}

// All tiles at one place, in equal parts of at most 14 rows.
inline void winograd_products_512(const int16_t* inputs, int64_t channels, const int16_t* weights, int64_t tiles,
                                  int32_t* sums) {
    using Products = void (*)(const int16_t*, int64_t, int64_t, const int16_t*, int64_t, int32_t*);
    constexpr int64_t kMost = 14;
    static constexpr Products kOfRows[kMost] = {
        winograd_products_512<1>,  winograd_products_512<2>,  winograd_products_512<3>,  winograd_products_512<4>,
        winograd_products_512<5>,  winograd_products_512<6>,  winograd_products_512<7>,  winograd_products_512<8>,
        winograd_products_512<9>,  winograd_products_512<10>, winograd_products_512<11>, winograd_products_512<12>,
        winograd_products_512<13>, winograd_products_512<14>,
    };
    const int64_t parts = (tiles + kMost - 1) / kMost, rows = (tiles + parts - 1) / parts;
    const int64_t middle = (tiles - parts * (rows - 1)) * rows;  // from here on, parts have one row less
    kOfRows[rows - 1](inputs, 2 * channels, channels / 2, weights, middle, sums);
    if (middle < tiles)
        kOfRows[rows - 2](inputs + middle * channels, 2 * channels, channels / 2, weights, tiles - middle,
                          sums + middle * kPanel);
}

// A' m A / 576 of one tile and 16 output channels, plus their bias: and the epilogue.
struct WinogradFinish512 {
    const Epilogue512& epilogue;
    int64_t panel, stride;
    Dwords512 middle64, bias;  // 64 times the middle of the window; that middle, and the bias of the epilogue

    void operator()(const int32_t* sums, const int64_t* y_rows) const {
        Dwords512 t[6][4];
#pragma GCC unroll 6
        for (int k = 0; k < 6; ++k) {
            Dwords512 m[6];
#pragma GCC unroll 6
            for (int i = 0; i < 6; ++i)
                m[i] = reinterpret_cast<Dwords512>(_mm512_load_si512(sums + (6 * i + k) * stride));
            transform_sums(m, t[k]);
        }
        bool whole = true;
        for (int i = 0; i < kTilePixels; ++i) whole = whole && y_rows[i] != kNoPixel;
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            const Dwords512 m[6] = {t[0][i], t[1][i], t[2][i], t[3][i], t[4][i], t[5][i]};
            Dwords512 y[4];
            transform_sums(m, y);
            Sums sum[4][1];
#pragma GCC unroll 4
            for (int k = 0; k < 4; ++k) {
                const Sums exact = reinterpret_cast<Sums>(y[k] * kInverseOf9 - middle64) >> 6;
                sum[k][0] = reinterpret_cast<Sums>(reinterpret_cast<Dwords512>(exact) + bias);
            }
            store(sum, y_rows + 4 * i, whole);
        }
    }

private:
    __attribute__((always_inline)) void store(const Sums (&sum)[4][1], const int64_t* y_rows, bool whole) const {
        if (whole) {
            const int64_t* const at[4] = {y_rows, y_rows + 1, y_rows + 2, y_rows + 3};
            return epilogue.store<4, 1>(sum, panel, at);
        }
        store_some(sum, y_rows);
    }
    __attribute__((noinline)) void store_some(const Sums (&sum)[4][1], const int64_t* y_rows) const {
        for (int k = 0; k < 4; ++k) {
            if (y_rows[k] == kNoPixel) continue;
            const Sums one[1][1] = {{sum[k][0]}};
            const int64_t* const at[1] = {y_rows + k};
            epilogue.store<1, 1>(one, panel, at);
        }
    }
};

inline void winograd_multiply_vnni(const WinogradArgs& a, int64_t begin, int64_t end, const PanelLayout& layout) {
    const int64_t inputs = WinogradArgs::inputs_stride(a.tiles, a.channels),
                  weights = WinogradArgs::weights_stride(a.channels), sums = WinogradArgs::kSumsStride;
    const Epilogue512 epilogue(a.epilogue, a.y, a.n);
    const auto load = [](const int32_t* from) { return reinterpret_cast<Dwords512>(_mm512_loadu_si512(from)); };
    for (int64_t p = begin; p < end; ++p) {
        transform_panel_512(a, layout, p);
        // Inputs are 0 to 255: the middle of the window is 255 / 2 times the sum of the weights.
        Dwords512 weight_sums = load(a.w_sums + p * kPanel);
        if (a.w_zero_point != nullptr)
            weight_sums -= static_cast<uint32_t>(9 * a.channels) * load(a.w_zero_point + p * kPanel);
        const Dwords512 middle = reinterpret_cast<Dwords512>(reinterpret_cast<Sums>(255u * weight_sums) >> 1);
        const WinogradFinish512 finish{epilogue, p, sums, middle << 6, middle + load(a.epilogue.bias + p * kPanel)};
        a.in_parts([&](int64_t first, int64_t past) {
            for (int64_t place = 0; place < kWinogradProducts; ++place)
                winograd_products_512(a.inputs + place * inputs + first * a.channels, a.channels,
                                      a.weights + place * weights, past - first, a.sums + place * sums);
            for (int64_t tile = first; tile < past; ++tile)
                finish(a.sums + (tile - first) * kPanel, a.y_rows + tile * kTilePixels);
        });
    }
}

}  // namespace
}  // namespace zeropoint
