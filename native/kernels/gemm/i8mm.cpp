// usmmla: two rows x eight channels of u8 times eight channels x two output channels of s8, added to 2 x 2 int32,
// exactly. One row takes usdot instead, whose lanes are four channels of an output channel.
#include "kernels/gemm/arm.h"

namespace zeropoint {
namespace {

struct UsmmlaTile {
    static constexpr PanelLayout kLayout = {8, 8};
    static constexpr Operand kOperand = Operand::shifted;
    static constexpr int kRows = 6;

    static void start(const GemmArgs&, int64_t, int32_t* to) {
        for (int i = 0; i < kPanel; ++i) to[i] = 0;
    }

    // 16 x 8 weights times eight channels of every pair of rows.
    template <int kPairs>
    __attribute__((always_inline)) static void step(const int8_t* w, const uint8x16_t (&x)[kPairs],
                                                    int32x4_t (&sum)[kPairs][8]) {
#pragma GCC unroll 8
        for (int j = 0; j < 8; ++j) {
            const int8x16_t weights = vld1q_s8(w + 16 * j);
#pragma GCC unroll 4
            for (int i = 0; i < kPairs; ++i) sum[i][j] = vusmmlaq_s32(sum[i][j], x[i], weights);
        }
    }

    // kCount rows as pairs; an odd last one is its own neighbour. Not inlined: alone, the loop finds a register for
    // every sum.
    template <int kCount>
    __attribute__((noinline)) static void sum_up(const GemmArgs& a, const int64_t* rows, const int8_t* w,
                                                 const int32_t* start, int32_t* acc) {
        if constexpr (kCount == 1) return one_row(a, rows[0], w, acc);
        static_cast<void>(start);
        constexpr int kPairs = (kCount + 1) / 2;
        constexpr int64_t kStep = 8 * kPanel;  // bytes of weights for eight channels
        int32x4_t sum[kPairs][8];
#pragma GCC unroll 4
        for (int i = 0; i < kPairs; ++i)
#pragma GCC unroll 8
            for (int j = 0; j < 8; ++j) sum[i][j] = vdupq_n_s32(0);
        for (int64_t t = 0; t < a.tap_count; ++t) {
            const uint8_t* row[2 * kPairs];
#pragma GCC unroll 8
            for (int i = 0; i < 2 * kPairs; ++i)
                row[i] = static_cast<const uint8_t*>(a.x) + rows[i < kCount ? i : kCount - 1] + a.taps[t];
            int64_t c = (a.channels + 7) / 8;
            for (; c >= 2; c -= 2, w += 2 * kStep) {
                uint8x16_t x[kPairs], next[kPairs];
#pragma GCC unroll 4
                for (int i = 0; i < kPairs; ++i) {
                    const uint64x2_t first = vreinterpretq_u64_u8(vld1q_u8(row[2 * i]));
                    const uint64x2_t second = vreinterpretq_u64_u8(vld1q_u8(row[2 * i + 1]));
                    x[i] = vreinterpretq_u8_u64(vzip1q_u64(first, second));
                    next[i] = vreinterpretq_u8_u64(vzip2q_u64(first, second));
                    row[2 * i] += 16;
                    row[2 * i + 1] += 16;
                }
                step(w, x, sum);
                step(w + kStep, next, sum);
            }
            if (c > 0) {
                uint8x16_t x[kPairs];
#pragma GCC unroll 4
                for (int i = 0; i < kPairs; ++i) x[i] = vcombine_u8(vld1_u8(row[2 * i]), vld1_u8(row[2 * i + 1]));
                step(w, x, sum);
                w += kStep;
            }
        }
#pragma GCC unroll 4
        for (int i = 0; i < kPairs; ++i)
#pragma GCC unroll 4
            for (int j = 0; j < 4; ++j) {
                const int64x2_t left = vreinterpretq_s64_s32(sum[i][2 * j]);
                const int64x2_t right = vreinterpretq_s64_s32(sum[i][2 * j + 1]);
                int32_t* const to = acc + 2 * i * kPanel + 4 * j;
                vst1q_s32(to, vreinterpretq_s32_s64(vzip1q_s64(left, right)));
                if (2 * i + 1 < kCount) vst1q_s32(to + kPanel, vreinterpretq_s32_s64(vzip2q_s64(left, right)));
            }
    }

    static void one_row(const GemmArgs& a, int64_t from, const int8_t* w, int32_t* acc) {
        int32x4_t sum[8];
#pragma GCC unroll 8
        for (int j = 0; j < 8; ++j) sum[j] = vdupq_n_s32(0);
        for (int64_t t = 0; t < a.tap_count; ++t) {
            const uint8_t* row = static_cast<const uint8_t*>(a.x) + from + a.taps[t];
            for (int64_t c = (a.channels + 7) / 8; c > 0; --c, row += 8, w += 8 * kPanel) {
                const uint8x8_t eight = vld1_u8(row);
                const uint8x16_t x = vcombine_u8(eight, eight);
#pragma GCC unroll 8
                for (int j = 0; j < 8; ++j) sum[j] = vusdotq_s32(sum[j], x, vld1q_s8(w + 16 * j));
            }
        }
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) vst1q_s32(acc + 4 * j, vpaddq_s32(sum[2 * j], sum[2 * j + 1]));
    }
};

}  // namespace

const GemmKernel& gemm_i8mm() {
    static const GemmKernel kernel = {UsmmlaTile::kLayout, UsmmlaTile::kOperand, convert_shifted,
                                      multiply_arm<UsmmlaTile>};
    return kernel;
}

}  // namespace zeropoint
