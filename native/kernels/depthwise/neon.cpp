// smlal on the activations of one tap after the other; a load that takes the pairs of weights apart gives those of two.
#include "kernels/depthwise/depthwise.h"
#include "kernels/gemm/centered.h"
#include "kernels/gemm/epilogue.h"
#include "kernels/simd/neon.h"

namespace zeropoint {
namespace {

constexpr int kTile = 4;  // rows that share the loads of weights

__attribute__((always_inline)) inline void multiply_add(const int16_t* x, int16x8_t w_low, int16x8_t w_high,
                                                        int32x4_t (&sum)[4]) {
    const int16x8_t low = vld1q_s16(x), high = vld1q_s16(x + 8);
    sum[0] = vmlal_s16(sum[0], vget_low_s16(low), vget_low_s16(w_low));
    sum[1] = vmlal_high_s16(sum[1], low, w_low);
    sum[2] = vmlal_s16(sum[2], vget_low_s16(high), vget_low_s16(w_high));
    sum[3] = vmlal_high_s16(sum[3], high, w_high);
}

// acc[kRows][16] = kRows rows times the weights of a block. Not inlined: alone, the loop finds a register for every
// sum.
template <int kRows>
__attribute__((noinline)) void sum_up(const DepthwiseArgs& a, int64_t m, int64_t block, int32_t* acc) {
    const int16_t* const x = a.x + block * kPanel;
    const int16_t* w = a.w + block * ((a.tap_count + 1) / 2) * kPanel * 2;
    const int16_t* row[kRows];
    int32x4_t sum[kRows][4];
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
        row[i] = x + a.rows[m + i];
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) sum[i][j] = vdupq_n_s32(0);
    }
    int64_t t = 0;
    for (; t + 2 <= a.tap_count; t += 2, w += 2 * kPanel) {
        const int64_t first = a.taps[t], second = a.taps[t + 1];
        const int16x8x2_t low = vld2q_s16(w), high = vld2q_s16(w + kPanel);
#pragma GCC unroll 4
        for (int i = 0; i < kRows; ++i) {
            multiply_add(row[i] + first, low.val[0], high.val[0], sum[i]);
            multiply_add(row[i] + second, low.val[1], high.val[1], sum[i]);
        }
    }
    if (t < a.tap_count) {
        const int16x8x2_t low = vld2q_s16(w), high = vld2q_s16(w + kPanel);
#pragma GCC unroll 4
        for (int i = 0; i < kRows; ++i) multiply_add(row[i] + a.taps[t], low.val[0], high.val[0], sum[i]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) vst1q_s32(acc + i * kPanel + 4 * j, sum[i][j]);
}

// A block of channels for a few pixels of rows at a time, so that the activations stay in L1 for all taps and blocks.
void multiply(const DepthwiseArgs& a, int64_t begin, int64_t end) {
    constexpr int64_t kTogether = 12 * kTile;
    for (int64_t first = 0; first < a.m; first += kTogether) {
        const int64_t past = first + kTogether < a.m ? first + kTogether : a.m;
        for (int64_t block = begin; block < end; ++block) {
            const PanelEpilogue<Neon> finish(a.epilogue, a.y, block, a.channels - block * kPanel);
            alignas(16) int32_t acc[kTile * kPanel];
            int64_t m = first;
            for (; m + kTile <= past; m += kTile) {
                sum_up<kTile>(a, m, block, acc);
                finish(acc, kTile, a.y_rows + m);
            }
            for (; m < past; ++m) {
                sum_up<1>(a, m, block, acc);
                finish(acc, 1, a.y_rows + m);
            }
        }
    }
}

}  // namespace

const DepthwiseKernel& depthwise_neon() {
    static const DepthwiseKernel kernel = {convert_centered, multiply};
    return kernel;
}

}  // namespace zeropoint
