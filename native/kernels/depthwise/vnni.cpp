// vpdpwssd on pairs of taps, 32 channels at a time: the activations of two taps are interleaved, the weights are stored
// so. Interleaving works within 128-bit lanes, so the two vectors of sums hold the channels 0-3, 8-11, 16-19, 24-27 and
// 4-7, 12-15, 20-23, 28-31.
#include "kernels/depthwise/depthwise.h"
#include "kernels/depthwise/in_place_vnni.h"
#include "kernels/gemm/centered.h"
#include "kernels/gemm/epilogue.h"
#include "kernels/simd/avx512.h"

namespace zeropoint {
namespace {

constexpr int kTile = 8;  // rows that share the loads of weights

struct Pair {
    __m512i low, high;
};

// Lanes 0, 2 and 1, 3 of both vectors.
inline Pair split(__m512i a, __m512i b) { return {_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xDD)}; }

// Back: lanes 0 and 1 of low and high in turn, and lanes 2 and 3.
inline Pair joined(__m512i low, __m512i high) {
    const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11),
                  second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    return {_mm512_permutex2var_epi64(low, first, high), _mm512_permutex2var_epi64(low, second, high)};
}

// Two blocks: acc[block][kRows][16]
template <int kRows>
inline void two_blocks(const DepthwiseArgs& a, const int16_t* x, const int64_t* rows, const int16_t* w,
                       const int16_t* next, int32_t* acc) {
    __m512i low[kRows], high[kRows];
    const int16_t* row[kRows];
    for (int i = 0; i < kRows; ++i) {
        low[i] = high[i] = _mm512_setzero_si512();
        row[i] = x + rows[i];
    }
    for (int64_t t = 0; t < a.tap_count; t += 2, w += 2 * kPanel, next += 2 * kPanel) {
        const int64_t first = a.taps[t], second = a.taps[t + 1 < a.tap_count ? t + 1 : t];
        const Pair weights = split(_mm512_loadu_si512(w), _mm512_loadu_si512(next));
#pragma GCC unroll 8
        for (int i = 0; i < kRows; ++i) {
            const __m512i x0 = _mm512_loadu_si512(row[i] + first), x1 = _mm512_loadu_si512(row[i] + second);
            low[i] = _mm512_dpwssd_epi32(low[i], _mm512_unpacklo_epi16(x0, x1), weights.low);
            high[i] = _mm512_dpwssd_epi32(high[i], _mm512_unpackhi_epi16(x0, x1), weights.high);
        }
    }
    for (int i = 0; i < kRows; ++i) {
        const Pair sums = joined(low[i], high[i]);
        _mm512_store_si512(acc + i * kPanel, sums.low);
        _mm512_store_si512(acc + (kRows + i) * kPanel, sums.high);
    }
}

// One block: acc[kRows][16]; a tap's activations are widened, and the second tap's put into the upper halves.
template <int kRows>
inline void one_block(const DepthwiseArgs& a, const int16_t* x, const int64_t* rows, const int16_t* w, int32_t* acc) {
    __m512i sum[kRows];
    for (int i = 0; i < kRows; ++i) sum[i] = _mm512_setzero_si512();
    for (int64_t t = 0; t < a.tap_count; t += 2, w += 2 * kPanel) {
        const int64_t first = a.taps[t], second = a.taps[t + 1 < a.tap_count ? t + 1 : t];
        const __m512i weights = _mm512_loadu_si512(w);
#pragma GCC unroll 8
        for (int i = 0; i < kRows; ++i) {
            const int16_t* from = x + rows[i];
            const __m256i x0 = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + first));
            const __m256i x1 = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + second));
            const __m512i pairs =
                _mm512_or_si512(_mm512_cvtepu16_epi32(x0), _mm512_slli_epi32(_mm512_cvtepu16_epi32(x1), 16));
            sum[i] = _mm512_dpwssd_epi32(sum[i], pairs, weights);
        }
    }
    for (int i = 0; i < kRows; ++i) _mm512_store_si512(acc + i * kPanel, sum[i]);
}

// All channels of some rows before the next rows: so the activations are read in order, and from L1 by all taps.
template <int kRows>
inline void tile(const DepthwiseArgs& a, int64_t m, int64_t begin, int64_t end) {
    const int64_t stride = (a.tap_count + 1) / 2 * kPanel * 2;  // weights of a block
    alignas(64) int32_t acc[2 * kRows * kPanel];
    const auto finish = [&](const int32_t* sums, int64_t block) {
        PanelEpilogue<Avx512>(a.epilogue, a.y, block, a.channels - block * kPanel)(sums, kRows, a.y_rows + m);
    };
    int64_t block = begin;
    for (; block + 2 <= end; block += 2) {
        const int16_t* w = a.w + block * stride;
        two_blocks<kRows>(a, a.x + block * kPanel, a.rows + m, w, w + stride, acc);
        finish(acc, block);
        finish(acc + kRows * kPanel, block + 1);
    }
    if (block < end) {
        one_block<kRows>(a, a.x + block * kPanel, a.rows + m, a.w + block * stride, acc);
        finish(acc, block);
    }
}

void multiply(const DepthwiseArgs& a, int64_t begin, int64_t end) {
    int64_t m = 0;
    for (; m + kTile <= a.m; m += kTile) tile<kTile>(a, m, begin, end);
    for (; m < a.m; ++m) tile<1>(a, m, begin, end);
}

}  // namespace

const DepthwiseKernel& depthwise_vnni() {
    static const DepthwiseKernel kernel = {convert_centered, multiply, &in_place_vnni()};
    return kernel;
}

}  // namespace zeropoint
