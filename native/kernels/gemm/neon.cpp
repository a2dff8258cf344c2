// smlal: each of four lanes adds one product of int16 to its int32. Activations are centered; so are the weights, by
// the addition that widens them.
#include "kernels/gemm/arm.h"
#include "kernels/gemm/centered.h"

namespace zeropoint {
namespace {

struct SmlalTile {
    static constexpr PanelLayout kLayout = {1, 1};
    static constexpr Operand kOperand = Operand::centered;
    static constexpr int kRows = 5;

    // The zero points of the weights.
    static void start(const GemmArgs& a, int64_t panel, int32_t* to) {
        for (int i = 0; i < kPanel; ++i) to[i] = a.w_zero_point != nullptr ? a.w_zero_point[panel * kPanel + i] : 0;
    }

    // 16 weights of one channel times lane kLane of every row.
    template <int kLane, int kCount>
    __attribute__((always_inline)) static void step(const int8_t* w, const Neon::I& zero_points,
                                                    const int16x8_t (&x)[kCount], int32x4_t (&sum)[kCount][4]) {
        const int8x16_t bytes = vld1q_s8(w);
        const int16x8_t low = vaddw_s8(vreinterpretq_s16_s32(zero_points.low), vget_low_s8(bytes));
        const int16x8_t high = vaddw_high_s8(vreinterpretq_s16_s32(zero_points.high), bytes);
#pragma GCC unroll 8
        for (int i = 0; i < kCount; ++i) {
            sum[i][0] = vmlal_laneq_s16(sum[i][0], vget_low_s16(low), x[i], kLane);
            sum[i][1] = vmlal_high_laneq_s16(sum[i][1], low, x[i], kLane);
            sum[i][2] = vmlal_laneq_s16(sum[i][2], vget_low_s16(high), x[i], kLane);
            sum[i][3] = vmlal_high_laneq_s16(sum[i][3], high, x[i], kLane);
        }
    }

    // Not inlined: alone, the loop finds a register for every sum.
    template <int kCount>
    __attribute__((noinline)) static void sum_up(const GemmArgs& a, const int64_t* rows, const int8_t* w,
                                                 const int32_t* start, int32_t* acc) {
        constexpr int64_t kTogether = 8;
        const auto negated = [&](int i) __attribute__((always_inline)) {
            return vreinterpretq_s32_s16(vnegq_s16(vuzp1q_s16(vreinterpretq_s16_s32(vld1q_s32(start + i)),
                                                              vreinterpretq_s16_s32(vld1q_s32(start + i + 4)))));
        };
        const Neon::I zero_points = {negated(0), negated(8)};
        int32x4_t sum[kCount][4];
#pragma GCC unroll 8
        for (int i = 0; i < kCount; ++i)
#pragma GCC unroll 4
            for (int j = 0; j < 4; ++j) sum[i][j] = vdupq_n_s32(0);
        for (int64_t t = 0; t < a.tap_count; ++t) {
            const int16_t* row[kCount];
#pragma GCC unroll 8
            for (int i = 0; i < kCount; ++i) row[i] = static_cast<const int16_t*>(a.x) + rows[i] + a.taps[t];
            int64_t c = a.channels;
            for (; c >= kTogether; c -= kTogether, w += kTogether * kPanel) {
                int16x8_t x[kCount];
#pragma GCC unroll 8
                for (int i = 0; i < kCount; ++i) {
                    x[i] = vld1q_s16(row[i]);
                    row[i] += kTogether;
                }
                step<0>(w, zero_points, x, sum);
                step<1>(w + kPanel, zero_points, x, sum);
                step<2>(w + 2 * kPanel, zero_points, x, sum);
                step<3>(w + 3 * kPanel, zero_points, x, sum);
                step<4>(w + 4 * kPanel, zero_points, x, sum);
                step<5>(w + 5 * kPanel, zero_points, x, sum);
                step<6>(w + 6 * kPanel, zero_points, x, sum);
                step<7>(w + 7 * kPanel, zero_points, x, sum);
            }
            for (; c > 0; --c, w += kPanel) {
                int16x8_t x[kCount];
#pragma GCC unroll 8
                for (int i = 0; i < kCount; ++i) x[i] = vld1q_dup_s16(row[i]++);
                step<0>(w, zero_points, x, sum);
            }
        }
#pragma GCC unroll 8
        for (int i = 0; i < kCount; ++i)
#pragma GCC unroll 4
            for (int j = 0; j < 4; ++j) vst1q_s32(acc + i * kPanel + 4 * j, sum[i][j]);
    }
};

}  // namespace

const GemmKernel& gemm_neon() {
    static const GemmKernel kernel = {SmlalTile::kLayout, SmlalTile::kOperand, convert_centered,
                                      multiply_arm<SmlalTile>};
    return kernel;
}

}  // namespace zeropoint
