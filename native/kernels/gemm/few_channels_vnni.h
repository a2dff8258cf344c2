// Rows of few channels, as the 1x1 convolutions that widen an image have them: 16, 24, 32 or 40, or the three taps of 9
// of a 3x3 stem. Their products take about as long as their epilogue, and a tile of many rows has all of the one before
// all of the other, which is more than a CPU looks ahead. Here the weights of some panels stay in registers, and rows
// go past them a few at a time, so that the products of the next rows are computed beside the epilogue of the last
// ones.
#pragma once

#include "kernels/gemm/epilogue_avx512.h"

#include <type_traits>

namespace zeropoint {
namespace {

// Of a call whose weights have no zero points.
struct FewChannels {
    const GemmArgs& a;
    const Epilogue512& epilogue;
    const int8_t* weights;  // of the panel
    int64_t step;           // bytes of weights to the next four channels
    int64_t panel;
};

// kPanels panels from `panel` on, of kRows rows at a time: four vectors of sums, which make one vector of bytes.
// kTaps taps of kSteps times four channels.
template <int kTaps, int kSteps, int kPanels>
__attribute__((noinline)) void few_channels_vnni(const FewChannels& job) {
    constexpr int kRows = 4 / kPanels, kAll = kTaps * kSteps;
    const Epilogue512 epilogue = job.epilogue;  // a copy, which no store can change
    const GemmArgs& a = job.a;
    const int64_t row_step = a.row_step, panel = job.panel;
    const int64_t* const y_rows = a.y_rows;
    __m512i weights[kAll][kPanels];
#pragma GCC unroll 10
    for (int c = 0; c < kAll; ++c)
#pragma GCC unroll 4
        for (int j = 0; j < kPanels; ++j) weights[c][j] = _mm512_load_si512(job.weights + c * job.step + j * 64);
    const int32_t* const bias = a.epilogue.bias + panel * kPanel;
    const uint8_t* x[kTaps];
    const auto some = [&](auto count, int64_t row) __attribute__((always_inline)) {
        constexpr int kCount = decltype(count)::value;
        Sums sum[kCount][kPanels];
        const int64_t* to[kCount];
#pragma GCC unroll 4
        for (int i = 0; i < kCount; ++i) {
            to[i] = y_rows + row + i;
#pragma GCC unroll 4
            for (int j = 0; j < kPanels; ++j) sum[i][j] = reinterpret_cast<Sums>(_mm512_loadu_si512(bias + j * kPanel));
        }
#pragma GCC unroll 10
        for (int c = 0; c < kAll; ++c)
#pragma GCC unroll 4
            for (int i = 0; i < kCount; ++i) {
                const uint8_t* const from = x[c / kSteps] + i * row_step + 4 * (c % kSteps);
                const __m512i v = _mm512_broadcastd_epi32(_mm_loadu_si32(from));
#pragma GCC unroll 4
                for (int j = 0; j < kPanels; ++j)
                    sum[i][j] = reinterpret_cast<Sums>(
                        _mm512_dpbusd_epi32(reinterpret_cast<__m512i>(sum[i][j]), v, weights[c][j]));
            }
        epilogue.store<kCount, kPanels>(sum, panel, to);
#pragma GCC unroll 3
        for (int t = 0; t < kTaps; ++t) x[t] += kCount * row_step;
    };
    for (int64_t row = 0; row < a.m;) {
        const int64_t end = row + a.run < a.m ? row + a.run : a.m;
#pragma GCC unroll 3
        for (int t = 0; t < kTaps; ++t) x[t] = static_cast<const uint8_t*>(a.x) + a.rows[row] + a.taps[t];
        for (; row + kRows <= end; row += kRows) some(std::integral_constant<int, kRows>(), row);
        if constexpr (kRows > 1)
            for (; row < end; ++row) some(std::integral_constant<int, 1>(), row);
    }
}

// The largest number of panels, of those that are left, whose weights fit into registers; 0 for other numbers of taps
// and channels. Calls few_channels_vnni for them.
inline int64_t few_channels_vnni(const FewChannels& job, int64_t left) {
    const auto run = [&](auto taps, auto count) {
        constexpr int kTaps = decltype(taps)::value, kSteps = decltype(count)::value;
        constexpr bool kFour = kTaps * kSteps <= 6;
        if constexpr (kFour) {
            if (left >= 4) return few_channels_vnni<kTaps, kSteps, 4>(job), int64_t{4};
        }
        if (left >= 2) return few_channels_vnni<kTaps, kSteps, 2>(job), int64_t{2};
        return few_channels_vnni<kTaps, kSteps, 1>(job), int64_t{1};
    };
    constexpr std::integral_constant<int, 1> kOne;
    const int64_t steps = (job.a.channels + 3) / 4;
    if (job.a.tap_count == 3 && steps == 3)
        return run(std::integral_constant<int, 3>(), std::integral_constant<int, 3>());
    if (job.a.tap_count != 1) return 0;
    switch (steps) {
        case 4: return run(kOne, std::integral_constant<int, 4>());
        case 6: return run(kOne, std::integral_constant<int, 6>());
        case 8: return run(kOne, std::integral_constant<int, 8>());
        case 10: return run(kOne, std::integral_constant<int, 10>());
        default: return 0;
    }
}

}  // namespace
}  // namespace zeropoint
