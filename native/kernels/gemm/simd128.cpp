// i32x4.dot_i16x8_s of WebAssembly: each of four lanes is the sum of two products of int16, exactly.
//
// Tiles of 4 rows x 8 output channels: 8 sums, 2 vectors of weights, 1 of activations and 1 product, which engines keep
// in the 16 registers of x86-64. Weights are widened where they are loaded, by one instruction.
#include "kernels/gemm/centered.h"
#include "kernels/gemm/epilogue.h"
#include "kernels/simd/simd128.h"

#include <wasm_simd128.h>

namespace zeropoint {
namespace {

constexpr int kTile = 4;               // rows
constexpr int64_t kHalf = kPanel / 2;  // output channels of a tile
constexpr int64_t kStep = 2 * kPanel;  // weights of two channels

// The zero points of 8 output channels, as they are subtracted from pairs of channels.
struct ZeroPoints {
    v128_t low = wasm_i16x8_const_splat(0), high = wasm_i16x8_const_splat(0);

    explicit ZeroPoints(const int32_t* of_weights) {
        if (of_weights == nullptr) return;
        alignas(16) int16_t pairs[kPanel];
        for (int i = 0; i < kPanel; ++i) pairs[i] = static_cast<int16_t>(of_weights[i / 2]);
        low = wasm_v128_load(pairs);
        high = wasm_v128_load(pairs + kHalf);
    }
};

// acc[kRows][16], one half of its columns: kRows rows times the weights of 8 output channels.
template <int kRows, bool kZeroPoints>
__attribute__((noinline)) void sum_up(const GemmArgs& a, const int64_t* rows, const int8_t* w, const ZeroPoints& zero,
                                      int32_t* acc) {
    v128_t sum[kRows][2];
#pragma unroll
    for (int i = 0; i < kRows; ++i) sum[i][0] = sum[i][1] = wasm_i32x4_const_splat(0);
    const int32_t pairs = static_cast<int32_t>((a.channels + 1) / 2);
    for (int64_t t = 0; t < a.tap_count; ++t) {
        const int16_t* row[kRows];
#pragma unroll
        for (int i = 0; i < kRows; ++i) row[i] = static_cast<const int16_t*>(a.x) + rows[i] + a.taps[t];
        for (int32_t c = 0; c < pairs; ++c, w += kStep) {
            v128_t w0 = wasm_i16x8_load8x8(w), w1 = wasm_i16x8_load8x8(w + 8);
            if (kZeroPoints) {
                w0 = wasm_i16x8_sub(w0, zero.low);
                w1 = wasm_i16x8_sub(w1, zero.high);
            }
#pragma unroll
            for (int i = 0; i < kRows; ++i) {
                const v128_t x = wasm_v128_load32_splat(row[i] + 2 * c);
                sum[i][0] = wasm_i32x4_add(sum[i][0], wasm_i32x4_dot_i16x8(x, w0));
                sum[i][1] = wasm_i32x4_add(sum[i][1], wasm_i32x4_dot_i16x8(x, w1));
            }
        }
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
        wasm_v128_store(acc + i * kPanel, sum[i][0]);
        wasm_v128_store(acc + i * kPanel + 4, sum[i][1]);
    }
}

template <bool kZeroPoints>
void sum_up_rows(int64_t count, const GemmArgs& a, const int64_t* rows, const int8_t* w, const ZeroPoints& zero,
                 int32_t* acc) {
    switch (count) {
        case 1: return sum_up<1, kZeroPoints>(a, rows, w, zero, acc);
        case 2: return sum_up<2, kZeroPoints>(a, rows, w, zero, acc);
        case 3: return sum_up<3, kZeroPoints>(a, rows, w, zero, acc);
        default: return sum_up<kTile, kZeroPoints>(a, rows, w, zero, acc);
    }
}

void multiply(const GemmArgs& a, int64_t begin, int64_t end) {
    const int64_t size = a.tap_count * ((a.channels + 1) / 2) * kStep;
    alignas(16) int32_t acc[kGemmRows * kPanel];
    for (int64_t p = begin; p < end; ++p) {
        const PanelEpilogue<Simd128> finish(a.epilogue, a.y, p, a.n - p * kPanel);
        for (int64_t half = 0; half < 2; ++half) {
            const int8_t* const w = a.panels + p * size + half * kPanel;
            const int32_t* const of_weights =
                a.w_zero_point == nullptr ? nullptr : a.w_zero_point + p * kPanel + half * kHalf;
            const ZeroPoints zero(of_weights);
            for (int64_t m = 0; m < a.m; m += kTile) {
                int32_t* const to = acc + m * kPanel + half * kHalf;
                if (of_weights == nullptr)
                    sum_up_rows<false>(a.m - m, a, a.rows + m, w, zero, to);
                else
                    sum_up_rows<true>(a.m - m, a, a.rows + m, w, zero, to);
            }
        }
        finish(acc, a.m, a.y_rows);
    }
}

}  // namespace

const GemmKernel& gemm_simd128() {
    static const GemmKernel kernel = {{2, 2}, Operand::centered, convert_centered, multiply};
    return kernel;
}

}  // namespace zeropoint
