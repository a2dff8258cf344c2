// vpmaddwd on pairs of taps: the activations of two taps are interleaved, the weights are stored so. Interleaving works
// within 128-bit halves, so the two vectors of sums hold the channels 0-3, 8-11 and 4-7, 12-15.
#include "kernels/depthwise/depthwise.h"
#include "kernels/gemm/centered.h"
#include "kernels/gemm/direct_avx2.h"
#include "kernels/gemm/epilogue.h"
#include "kernels/simd/avx2.h"

namespace zeropoint {
namespace {

constexpr int kTile = 6;  // rows that share the loads of weights

inline __m128i load8(const int16_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }

// low += x0 w + x1 w' for the channels 0-3 and 8-11, high for the others. In this order, and with these two registers
// beside the sums and the weights: compilers take more, and then keep sums in memory.
inline __attribute__((always_inline)) void multiply_add(const int16_t* x0, const int16_t* x1, __m256i w_low,
                                                        __m256i w_high, __m256i& low, __m256i& high) {
    struct Sixteen {
        int16_t values[16];
    };
    __m256i first, pairs;
    __asm__ volatile("vmovdqu %[x0], %[first]\n\t"
                     "vpunpcklwd %[x1], %[first], %[pairs]\n\t"
                     "vpunpckhwd %[x1], %[first], %[first]\n\t"
                     "vpmaddwd %[w_low], %[pairs], %[pairs]\n\t"
                     "vpaddd %[pairs], %[low], %[low]\n\t"
                     "vpmaddwd %[w_high], %[first], %[first]\n\t"
                     "vpaddd %[first], %[high], %[high]"
                     : [low] "+x"(low), [high] "+x"(high), [first] "=&x"(first), [pairs] "=&x"(pairs)
                     : [x0] "m"(*reinterpret_cast<const Sixteen*>(x0)), [x1] "m"(*reinterpret_cast<const Sixteen*>(x1)),
                       [w_low] "x"(w_low), [w_high] "x"(w_high));
}

// sum[kRows] = start + kRows rows times the weights of a block; in SumOrder::split.
template <int kRows>
inline __attribute__((always_inline)) void sum_up(const DepthwiseArgs& a, int64_t m, int64_t block,
                                                  const __m256i (&start)[2], __m256i (&sum)[kRows][2]) {
    const int16_t* const x = a.x + block * kPanel;
    const int16_t* w = a.w + block * ((a.tap_count + 1) / 2) * kPanel * 2;
    const int16_t* row[kRows];
#pragma GCC unroll 6
    for (int i = 0; i < kRows; ++i) {
        sum[i][0] = start[0];
        sum[i][1] = start[1];
        row[i] = x + a.rows[m + i];
    }
    for (int64_t t = 0; t < a.tap_count; t += 2, w += 2 * kPanel) {
        const int64_t first = a.taps[t], second = a.taps[t + 1 < a.tap_count ? t + 1 : t];
        // Weights as the halves are interleaved.
        const __m256i w_low = _mm256_set_m128i(load8(w + 16), load8(w)),
                      w_high = _mm256_set_m128i(load8(w + 24), load8(w + 8));
#pragma GCC unroll 6
        for (int i = 0; i < kRows; ++i)
            multiply_add(row[i] + first, row[i] + second, w_low, w_high, sum[i][0], sum[i][1]);
    }
}

// What the direct epilogue of a block needs, in SumOrder::split.
struct Split {
    alignas(32) float multiplier[kPanel], float_bias[kPanel];
    __m256i bias[2];

    Split(const Epilogue& e, int64_t block) {
        split(e.multiplier + block * kPanel, multiplier);
        split(e.float_bias + block * kPanel, float_bias);
        const __m256i* from = reinterpret_cast<const __m256i*>(e.bias + block * kPanel);
        const __m256i b0 = _mm256_loadu_si256(from), b1 = _mm256_loadu_si256(from + 1);
        bias[0] = _mm256_permute2x128_si256(b0, b1, 0x20);
        bias[1] = _mm256_permute2x128_si256(b0, b1, 0x31);
    }
    static void split(const float* from, float* to) {
        const __m256 v0 = _mm256_loadu_ps(from), v1 = _mm256_loadu_ps(from + 8);
        _mm256_store_ps(to, _mm256_permute2f128_ps(v0, v1, 0x20));
        _mm256_store_ps(to + 8, _mm256_permute2f128_ps(v0, v1, 0x31));
    }
};

// Tiles of kRows rows from row m to row `end`, for one block: all but whole blocks to bytes go through memory.
// Not inlined: alone, the loops find a register for every pointer.
template <int kRows>
__attribute__((noinline)) void to_bytes(const DepthwiseArgs& a, int64_t m, int64_t end, int64_t block,
                                        const Split& split, const DirectEpilogue& finish) {
    for (; m < end; m += kRows) {
        __m256i sum[kRows][2];
        sum_up(a, m, block, split.bias, sum);
        finish.store<SumOrder::split>(sum, a.y_rows + m);
    }
}
template <int kRows>
__attribute__((noinline)) void through_memory(const DepthwiseArgs& a, int64_t m, int64_t end, int64_t block) {
    const PanelEpilogue<Avx2> finish(a.epilogue, a.y, block, a.channels - block * kPanel);
    for (; m < end; m += kRows) {
        const __m256i start[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
        __m256i sum[kRows][2];
        sum_up(a, m, block, start, sum);
        alignas(32) int32_t acc[kRows * kPanel];
#pragma GCC unroll 6
        for (int i = 0; i < kRows; ++i) {
            __m256i* to = reinterpret_cast<__m256i*>(acc + i * kPanel);
            _mm256_store_si256(to, _mm256_permute2x128_si256(sum[i][0], sum[i][1], 0x20));
            _mm256_store_si256(to + 1, _mm256_permute2x128_si256(sum[i][0], sum[i][1], 0x31));
        }
        finish(acc, kRows, a.y_rows + m);
    }
}

// A block of channels for a few pixels of rows at a time, so that the activations stay in L1 for all taps and blocks.
void multiply(const DepthwiseArgs& a, int64_t begin, int64_t end) {
    constexpr int64_t kTogether = 8 * kTile;
    for (int64_t first = 0; first < a.m; first += kTogether) {
        const int64_t past = first + kTogether < a.m ? first + kTogether : a.m;
        const int64_t middle = first + (past - first) / kTile * kTile;
        for (int64_t block = begin; block < end; ++block) {
            if (DirectEpilogue::fits(a.epilogue, a.channels - block * kPanel)) {
                const Split split(a.epilogue, block);
                const DirectEpilogue finish(a.epilogue, a.y, block, split.multiplier, split.float_bias);
                to_bytes<kTile>(a, first, middle, block, split, finish);
                to_bytes<1>(a, middle, past, block, split, finish);
            } else {
                through_memory<kTile>(a, first, middle, block);
                through_memory<1>(a, middle, past, block);
            }
        }
    }
}

}  // namespace

const DepthwiseKernel& depthwise_avx2() {
    static const DepthwiseKernel kernel = {convert_centered, multiply};
    return kernel;
}

}  // namespace zeropoint
