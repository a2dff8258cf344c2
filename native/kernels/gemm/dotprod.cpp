// sdot: each of four lanes adds four products s8 x s8 to its int32, exactly. Activations are u8 and become s8 by taking
// 128 from them, which is one bit; 128 times the sum of the weights is where the sums begin:
//   sum(x w) = sum((x - 128) w) + 128 sum(w)
#include "kernels/gemm/arm.h"

namespace zeropoint {
namespace {

struct SdotTile {
    static constexpr PanelLayout kLayout = {4, 4};
    static constexpr Operand kOperand = Operand::shifted;
    static constexpr int kRows = 6;

    static void start(const GemmArgs& a, int64_t panel, int32_t* to) {
        for (int i = 0; i < kPanel; i += 4) vst1q_s32(to + i, vshlq_n_s32(vld1q_s32(a.w_sums + panel * kPanel + i), 7));
    }

    // 16 x 4 weights times four channels of every row, which are lane kLane.
    template <int kLane, int kCount>
    __attribute__((always_inline)) static void step(const int8_t* w, const int8x16_t (&x)[kCount],
                                                    int32x4_t (&sum)[kCount][4]) {
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) {
            const int8x16_t weights = vld1q_s8(w + 16 * j);
#pragma GCC unroll 8
            for (int i = 0; i < kCount; ++i) sum[i][j] = vdotq_laneq_s32(sum[i][j], weights, x[i], kLane);
        }
    }

    // Not inlined: alone, the loop finds a register for every sum.
    template <int kCount>
    __attribute__((noinline)) static void sum_up(const GemmArgs& a, const int64_t* rows, const int8_t* w,
                                                 const int32_t* start, int32_t* acc) {
        constexpr int64_t kStep = 4 * kPanel;                  // bytes of weights for four channels
        constexpr int kChains = kCount <= 2 ? 4 / kCount : 1;  // few sums would wait for each other
        int32x4_t sum[kChains][kCount][4];
#pragma GCC unroll 8
        for (int i = 0; i < kCount; ++i)
#pragma GCC unroll 4
            for (int j = 0; j < 4; ++j) {
                sum[0][i][j] = vld1q_s32(start + 4 * j);
#pragma GCC unroll 4
                for (int k = 1; k < kChains; ++k) sum[k][i][j] = vdupq_n_s32(0);
            }
        const uint8x16_t flip = vdupq_n_u8(0x80);
        for (int64_t t = 0; t < a.tap_count; ++t) {
            const uint8_t* row[kCount];
#pragma GCC unroll 8
            for (int i = 0; i < kCount; ++i) row[i] = static_cast<const uint8_t*>(a.x) + rows[i] + a.taps[t];
            int64_t c = (a.channels + 3) / 4;
            for (; c >= 4; c -= 4, w += 4 * kStep) {
                int8x16_t x[kCount];
#pragma GCC unroll 8
                for (int i = 0; i < kCount; ++i) {
                    x[i] = vreinterpretq_s8_u8(veorq_u8(vld1q_u8(row[i]), flip));
                    row[i] += 16;
                }
                step<0>(w, x, sum[0]);
                step<1>(w + kStep, x, sum[1 % kChains]);
                step<2>(w + 2 * kStep, x, sum[2 % kChains]);
                step<3>(w + 3 * kStep, x, sum[3 % kChains]);
            }
            for (; c > 0; --c, w += kStep) {
                int8x16_t x[kCount];
#pragma GCC unroll 8
                for (int i = 0; i < kCount; ++i) {
                    uint32_t four;
                    std::memcpy(&four, row[i], sizeof four);
                    x[i] = vreinterpretq_s8_u8(veorq_u8(vreinterpretq_u8_u32(vdupq_n_u32(four)), flip));
                    row[i] += 4;
                }
                step<0>(w, x, sum[0]);
            }
        }
#pragma GCC unroll 8
        for (int i = 0; i < kCount; ++i)
#pragma GCC unroll 4
            for (int j = 0; j < 4; ++j) {
#pragma GCC unroll 4
                for (int k = 1; k < kChains; ++k) sum[0][i][j] = vaddq_s32(sum[0][i][j], sum[k][i][j]);
                vst1q_s32(acc + i * kPanel + 4 * j, sum[0][i][j]);
            }
    }
};

}  // namespace

const GemmKernel& gemm_dotprod() {
    static const GemmKernel kernel = {SdotTile::kLayout, SdotTile::kOperand, convert_shifted, multiply_arm<SdotTile>};
    return kernel;
}

}  // namespace zeropoint
