// gemm with vpdpbusd: each of 16 lanes adds four products u8 x s8 to its int32, exactly. (Not vpdpbusds, which
// saturates.) Tiles of 12 rows x 32 output channels: 24 sums, 2 vectors of weights, the rest for activations. Shared by
// the vnni and amx kernels, which pad the channels of a tap to different multiples.
#pragma once

#include "kernels/gemm/epilogue.h"
#include "kernels/gemm/shifted.h"
#include "kernels/simd/avx512.h"

namespace zeropoint {
namespace {

// acc[m][i] -= sums[m] * w_zero_point[i], for 16 output channels.
inline void subtract_row_sums(int64_t rows, const uint32_t* sums, const int32_t* w_zero_point, int32_t* acc) {
    const __m512i zero_point = _mm512_loadu_si512(w_zero_point);
    for (int64_t m = 0; m < rows; ++m) {
        const __m512i term = _mm512_mullo_epi32(_mm512_set1_epi32(static_cast<int32_t>(sums[m])), zero_point);
        _mm512_store_si512(acc + m * kPanel, _mm512_sub_epi32(_mm512_load_si512(acc + m * kPanel), term));
    }
}

// acc[kPanels][kRows][16] = kRows rows times kPanels neighbouring panels.
template <int kRows, int kPanels>
inline void accumulate_vnni(const GemmArgs& a, const int64_t* rows, const int8_t* panel, int64_t padded,
                            int64_t panel_size, int32_t* acc) {
    __m512i sum[kRows][kPanels];
    for (auto& row : sum)
        for (__m512i& s : row) s = _mm512_setzero_si512();
    const int64_t steps = (a.channels + 3) / 4;
    for (int64_t t = 0; t < a.tap_count; ++t) {
        const uint8_t* row[kRows];
        for (int i = 0; i < kRows; ++i) row[i] = static_cast<const uint8_t*>(a.x) + rows[i] + a.taps[t];
        const int8_t* w = panel + t * padded * kPanel;
        for (int64_t c = 0; c < steps; ++c, w += 4 * kPanel) {
            __m512i weights[kPanels];
            for (int j = 0; j < kPanels; ++j) weights[j] = _mm512_load_si512(w + j * panel_size);
#pragma GCC unroll 12
            for (int i = 0; i < kRows; ++i) {
                const __m512i v = _mm512_broadcastd_epi32(_mm_loadu_si32(row[i] + 4 * c));
                for (int j = 0; j < kPanels; ++j) sum[i][j] = _mm512_dpbusd_epi32(sum[i][j], v, weights[j]);
            }
        }
    }
    for (int j = 0; j < kPanels; ++j)
        for (int i = 0; i < kRows; ++i) _mm512_store_si512(acc + (j * kRows + i) * kPanel, sum[i][j]);
}

// kRows rows and the kPanels panels from `p` on, with their epilogue.
template <int kRows, int kPanels>
inline void tile_vnni(const GemmArgs& a, int64_t m, int64_t p, int64_t padded, const uint32_t* sums) {
    alignas(64) int32_t acc[kRows * kPanels * kPanel];
    const int64_t panel_size = a.tap_count * padded * kPanel;
    accumulate_vnni<kRows, kPanels>(a, a.rows + m, a.panels + p * panel_size, padded, panel_size, acc);
    for (int j = 0; j < kPanels; ++j) {
        int32_t* part = acc + j * kRows * kPanel;
        if (sums != nullptr) subtract_row_sums(kRows, sums + m, a.w_zero_point + (p + j) * kPanel, part);
        PanelEpilogue<Avx512>(a.epilogue, a.y, p + j, a.n - (p + j) * kPanel)(part, kRows, a.y_rows + m);
    }
}

template <int kPanels>
inline void rows_vnni(const GemmArgs& a, int64_t p, int64_t padded, const uint32_t* sums) {
    int64_t m = 0;
    for (; a.m - m >= 12; m += 12) tile_vnni<12, kPanels>(a, m, p, padded, sums);
    for (; a.m - m >= 6; m += 6) tile_vnni<6, kPanels>(a, m, p, padded, sums);
    switch (a.m - m) {
        case 1: return tile_vnni<1, kPanels>(a, m, p, padded, sums);
        case 2: return tile_vnni<2, kPanels>(a, m, p, padded, sums);
        case 3: return tile_vnni<3, kPanels>(a, m, p, padded, sums);
        case 4: return tile_vnni<4, kPanels>(a, m, p, padded, sums);
        case 5: return tile_vnni<5, kPanels>(a, m, p, padded, sums);
        default: return;
    }
}

// Few rows: as many panels as there are registers for sums. Two sums would wait for each other, as vpdpbusd takes five
// cycles; and weights are then read from eight places, which is what takes time.
template <int kRows, int kPanels>
inline int64_t wide_vnni(const GemmArgs& a, int64_t p, int64_t end, int64_t padded, const uint32_t* sums) {
    for (; p + kPanels <= end; p += kPanels) tile_vnni<kRows, kPanels>(a, 0, p, padded, sums);
    return p;
}

inline int64_t few_rows_vnni(const GemmArgs& a, int64_t p, int64_t end, int64_t padded, const uint32_t* sums) {
    switch (a.m) {
        case 1: return wide_vnni<1, 8>(a, p, end, padded, sums);
        case 2: return wide_vnni<2, 8>(a, p, end, padded, sums);
        case 3: return wide_vnni<3, 6>(a, p, end, padded, sums);
        case 4: return wide_vnni<4, 4>(a, p, end, padded, sums);
        default: return p;
    }
}

inline void multiply_vnni(const GemmArgs& a, int64_t begin, int64_t end, int64_t padded) {
    uint32_t sums[kGemmRows];
    if (a.w_zero_point != nullptr) row_sums(a, sums);
    const uint32_t* const given = a.w_zero_point != nullptr ? sums : nullptr;
    int64_t p = few_rows_vnni(a, begin, end, padded, given);
    for (; p + 2 <= end; p += 2) rows_vnni<2>(a, p, padded, given);
    if (p < end) rows_vnni<1>(a, p, padded, given);
}

}  // namespace
}  // namespace zeropoint
