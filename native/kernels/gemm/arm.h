// gemm for 64-bit ARM: what the levels share. A Tile has a layout, an operand and kRows; sum_up<count>(args, rows,
// panel, start, acc) writes the sums of that many rows x 16 output channels. They go through L1 to the epilogue.
#pragma once

#include "kernels/gemm/epilogue.h"
#include "kernels/gemm/shifted.h"
#include "kernels/simd/neon.h"

namespace zeropoint {
namespace {

// acc[m][i] -= sums[m] * w_zero_point[i], for 16 output channels.
inline void subtract_row_sums(int64_t rows, const uint32_t* sums, const int32_t* w_zero_point, int32_t* acc) {
    for (int64_t m = 0; m < rows; ++m)
        for (int i = 0; i < kPanel; i += 4) {
            int32_t* const at = acc + m * kPanel + i;
            vst1q_s32(at, vmlsq_n_s32(vld1q_s32(at), vld1q_s32(w_zero_point + i), static_cast<int32_t>(sums[m])));
        }
}

template <class Tile, int kCount = Tile::kRows>
inline void sum_up_rows(int64_t count, const GemmArgs& a, const int64_t* rows, const int8_t* panel,
                        const int32_t* start, int32_t* acc) {
    if constexpr (kCount > 1)
        if (count < kCount) return sum_up_rows<Tile, kCount - 1>(count, a, rows, panel, start, acc);
    Tile::template sum_up<kCount>(a, rows, panel, start, acc);
}

template <class Tile>
void multiply_arm(const GemmArgs& a, int64_t begin, int64_t end) {
    constexpr bool kSubtracts = Tile::kOperand == Operand::shifted;  // the zero points of the weights
    uint32_t sums[kGemmRows];
    if (kSubtracts && a.w_zero_point != nullptr) row_sums(a, sums);
    const int64_t size = a.tap_count * Tile::kLayout.padded(a.channels) * kPanel;
    for (int64_t p = begin; p < end; ++p) {
        const PanelEpilogue<Neon> finish(a.epilogue, a.y, p, a.n - p * kPanel);
        int32_t start[kPanel];
        Tile::start(a, p, start);
        for (int64_t m = 0; m < a.m; m += Tile::kRows) {
            const int64_t count = a.m - m < Tile::kRows ? a.m - m : Tile::kRows;
            alignas(16) int32_t acc[Tile::kRows * kPanel];
            sum_up_rows<Tile>(count, a, a.rows + m, a.panels + p * size, start, acc);
            if (kSubtracts && a.w_zero_point != nullptr)
                subtract_row_sums(count, sums + m, a.w_zero_point + p * kPanel, acc);
            finish(acc, count, a.y_rows + m);
        }
    }
}

}  // namespace
}  // namespace zeropoint
