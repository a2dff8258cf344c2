// The inner loop over products of 16 bits, and weights as it reads them: vpmaddwd, or vpdpwssd in files for AVX-VNNI.
#pragma once

#include "kernels/gemm/direct_avx2.h"
#include "kernels/gemm/gemm.h"
#include "kernels/simd/word_products.h"

#include <cstring>
#include <immintrin.h>

namespace zeropoint {
namespace {

constexpr int kTile = 6;  // rows
alignas(64) constexpr int32_t kNoSums[kPanel] = {};

// The taps [tap, tap_end) of which the channels [channel, channel + 2 * pairs) are summed.
struct Depth {
    int64_t tap, tap_end, channel, pairs;
};

inline __m256i load_weights(const int16_t* w) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(w)); }
inline __m256i load_weights(const int8_t* w) {
    return _mm256_cvtepi8_epi16(_mm_load_si128(reinterpret_cast<const __m128i*>(w)));
}

// Where the sums of a tile begin: rows of 16, `step` apart; with 0, all begin with the same.
struct Start {
    const int32_t* sums;
    int64_t step;
};

// sum[kRows][16] = start + kRows rows times the weights of a panel at this depth.
template <int kRows, class W>
inline __attribute__((always_inline)) void sum_up(const int16_t* x, const int64_t* rows, const int64_t* taps,
                                                  const Depth& d, const W* w, const Start& start,
                                                  __m256i (&sum)[kRows][2]) {
#pragma GCC unroll 6
    for (int i = 0; i < kRows; ++i) {
        const __m256i* from = reinterpret_cast<const __m256i*>(start.sums + i * start.step);
        sum[i][0] = _mm256_loadu_si256(from);
        sum[i][1] = _mm256_loadu_si256(from + 1);
    }
    for (int64_t t = d.tap; t < d.tap_end; ++t) {
        const int16_t* row[kRows];
#pragma GCC unroll 6
        for (int i = 0; i < kRows; ++i) row[i] = x + d.channel + rows[i] + taps[t];
        for (int64_t c = 0; c < d.pairs; ++c, w += 2 * kPanel) {
            const __m256i w0 = load_weights(w), w1 = load_weights(w + kPanel);
#pragma GCC unroll 6
            for (int i = 0; i < kRows; ++i) multiply_add(row[i] + 2 * c, w0, w1, sum[i][0], sum[i][1]);
        }
    }
}

// What becomes of the sums of a tile that begins with row m: they stay in memory, as rows of 16, or are finished.
struct ToSums {
    int32_t* acc;

    template <int kRows>
    __attribute__((always_inline)) void operator()(int64_t m, const __m256i (&sum)[kRows][2]) const {
        __m256i* const to = reinterpret_cast<__m256i*>(acc + m * kPanel);
#pragma GCC unroll 6
        for (int i = 0; i < kRows; ++i) {
            _mm256_store_si256(to + 2 * i, sum[i][0]);
            _mm256_store_si256(to + 2 * i + 1, sum[i][1]);
        }
    }
};
struct ToBytes {
    const DirectEpilogue& finish;
    const int64_t* y_rows;

    template <int kRows>
    __attribute__((always_inline)) void operator()(int64_t m, const __m256i (&sum)[kRows][2]) const {
        finish.store(sum, y_rows + m);
    }
};

// Memory that is fetched meanwhile: so many bytes for each tile.
struct Ahead {
    const int8_t* next = nullptr;
    int64_t bytes = 0;
};

// Tiles of kRows rows from row m to row `end`.
// Not inlined: alone, the loop finds a register for every pointer.
template <int kRows, class W, class To>
__attribute__((noinline)) void accumulate(const int16_t* x, const int64_t* rows, int64_t m, int64_t end,
                                          const int64_t* taps, const Depth& d, const W* w, const Start& start,
                                          const To& to, const Ahead& ahead) {
    for (const int8_t* next = ahead.next + m / kRows * ahead.bytes; m < end; m += kRows) {
        for (const int8_t* past = next + ahead.bytes; next < past; next += 64)
            _mm_prefetch(reinterpret_cast<const char*>(next), _MM_HINT_T1);
        __m256i sum[kRows][2];
        sum_up(x, rows + m, taps, d, w, Start{start.sums + m * start.step, start.step}, sum);
        to(m, sum);
    }
}

// `count` rows, in tiles of as many rows or one less.
template <class W, class To>
inline void accumulate(const int16_t* x, const int64_t* rows, int64_t count, const int64_t* taps, const Depth& d,
                       const W* w, const Start& start, const To& to, const Ahead& ahead = {}) {
    const int64_t tiles = (count + kTile - 1) / kTile, most = (count + tiles - 1) / tiles;
    const int64_t middle = (count - tiles * (most - 1)) * most;
    const auto run = [&](int64_t height, int64_t begin, int64_t end) {
        switch (begin < end ? height : 0) {
            case 1: return accumulate<1>(x, rows, begin, end, taps, d, w, start, to, ahead);
            case 2: return accumulate<2>(x, rows, begin, end, taps, d, w, start, to, ahead);
            case 3: return accumulate<3>(x, rows, begin, end, taps, d, w, start, to, ahead);
            case 4: return accumulate<4>(x, rows, begin, end, taps, d, w, start, to, ahead);
            case 5: return accumulate<5>(x, rows, begin, end, taps, d, w, start, to, ahead);
            case 6: return accumulate<6>(x, rows, begin, end, taps, d, w, start, to, ahead);
            default: return;
        }
    };
    run(most, 0, middle);
    run(most - 1, middle, count);
}

// The zero points of a panel's weights, as they are subtracted from pairs of channels.
struct PairZeroPoints {
    __m256i half[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};

    // w_zero_point: 16 of them, or null
    explicit PairZeroPoints(const int32_t* w_zero_point) {
        if (w_zero_point == nullptr) return;
        alignas(32) int16_t pairs[2 * kPanel];
        for (int i = 0; i < 2 * kPanel; ++i) pairs[i] = static_cast<int16_t>(w_zero_point[i / 2]);
        for (int j = 0; j < 2; ++j) half[j] = load_weights(pairs + j * kPanel);
    }
};

}  // namespace
}  // namespace zeropoint
