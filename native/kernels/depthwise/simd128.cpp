// i32x4.dot_i16x8_s on the activations of two taps, interleaved.
#include "kernels/depthwise/depthwise.h"
#include "kernels/gemm/centered.h"
#include "kernels/gemm/epilogue.h"
#include "kernels/simd/simd128.h"

#include <wasm_simd128.h>

namespace zeropoint {
namespace {

constexpr int kTile = 2;  // rows that share the loads of weights

// acc[kRows][16] = kRows rows times the weights of a block.
template <int kRows>
__attribute__((noinline)) void sum_up(const DepthwiseArgs& a, int64_t m, int64_t block, int32_t* acc) {
    const int16_t* w = a.w + block * ((a.tap_count + 1) / 2) * kPanel * 2;
    const int16_t* row[kRows];
    v128_t sum[kRows][4];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
        row[i] = a.x + block * kPanel + a.rows[m + i];
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[i][j] = wasm_i32x4_const_splat(0);
    }
    for (int64_t t = 0; t < a.tap_count; t += 2, w += 2 * kPanel) {
        // The weights of a tap that is missing are zeros.
        const int64_t first = a.taps[t], second = t + 1 < a.tap_count ? a.taps[t + 1] : first;
#pragma unroll
        for (int i = 0; i < kRows; ++i)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const v128_t x0 = wasm_v128_load(row[i] + first + 8 * half);
                const v128_t x1 = wasm_v128_load(row[i] + second + 8 * half);
                const v128_t low = wasm_i16x8_shuffle(x0, x1, 0, 8, 1, 9, 2, 10, 3, 11);
                const v128_t high = wasm_i16x8_shuffle(x0, x1, 4, 12, 5, 13, 6, 14, 7, 15);
                v128_t& s0 = sum[i][2 * half];
                v128_t& s1 = sum[i][2 * half + 1];
                s0 = wasm_i32x4_add(s0, wasm_i32x4_dot_i16x8(low, wasm_v128_load(w + 16 * half)));
                s1 = wasm_i32x4_add(s1, wasm_i32x4_dot_i16x8(high, wasm_v128_load(w + 16 * half + 8)));
            }
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) wasm_v128_store(acc + i * kPanel + 4 * j, sum[i][j]);
}

// A block of channels for a few pixels of rows at a time, so that the activations stay in L1 for all taps and blocks.
void multiply(const DepthwiseArgs& a, int64_t begin, int64_t end) {
    constexpr int64_t kTogether = 24 * kTile;
    alignas(16) int32_t acc[kTogether * kPanel];
    for (int64_t first = 0; first < a.m; first += kTogether) {
        const int64_t past = first + kTogether < a.m ? first + kTogether : a.m;
        for (int64_t block = begin; block < end; ++block) {
            const PanelEpilogue<Simd128> finish(a.epilogue, a.y, block, a.channels - block * kPanel);
            int64_t m = first;
            for (; m + kTile <= past; m += kTile) sum_up<kTile>(a, m, block, acc + (m - first) * kPanel);
            if (m < past) sum_up<1>(a, m, block, acc + (m - first) * kPanel);
            finish(acc, past - first, a.y_rows + first);
        }
    }
}

}  // namespace

const DepthwiseKernel& depthwise_simd128() {
    static const DepthwiseKernel kernel = {convert_centered, multiply};
    return kernel;
}

}  // namespace zeropoint
