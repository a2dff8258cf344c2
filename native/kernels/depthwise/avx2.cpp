// vpmaddwd on pairs of taps: the activations of two taps are interleaved, the weights are stored so. Interleaving works
// within 128-bit halves, so the two vectors of sums hold the channels 0-3, 8-11 and 4-7, 12-15.
#include "kernels/depthwise/depthwise.h"
#include "kernels/gemm/centered.h"
#include "kernels/gemm/epilogue.h"
#include "kernels/simd/avx2.h"

namespace zeropoint {
namespace {

constexpr int kTile = 4;  // rows that share the loads of weights

inline __m256i load(const int16_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }

// acc[kRows][16]
template <int kRows>
inline void accumulate(const DepthwiseArgs& a, const int16_t* x, const int64_t* rows, const int16_t* w, int32_t* acc) {
    __m256i low[kRows], high[kRows];
    const int16_t* row[kRows];
    for (int i = 0; i < kRows; ++i) {
        low[i] = high[i] = _mm256_setzero_si256();
        row[i] = x + rows[i];
    }
    for (int64_t t = 0; t < a.tap_count; t += 2, w += 2 * kPanel) {
        const int64_t first = a.taps[t], second = a.taps[t + 1 < a.tap_count ? t + 1 : t];
        // Weights as the halves are interleaved: channels 0-3 and 8-11 with 4-7 and 12-15.
        const __m256i w0 = load(w), w1 = load(w + kPanel);
        const __m256i w_low = _mm256_permute2x128_si256(w0, w1, 0x20), w_high = _mm256_permute2x128_si256(w0, w1, 0x31);
#pragma GCC unroll 4
        for (int i = 0; i < kRows; ++i) {
            const __m256i x0 = load(row[i] + first), x1 = load(row[i] + second);
            low[i] = _mm256_add_epi32(low[i], _mm256_madd_epi16(_mm256_unpacklo_epi16(x0, x1), w_low));
            high[i] = _mm256_add_epi32(high[i], _mm256_madd_epi16(_mm256_unpackhi_epi16(x0, x1), w_high));
        }
    }
    for (int i = 0; i < kRows; ++i) {
        __m256i* to = reinterpret_cast<__m256i*>(acc + i * kPanel);
        _mm256_store_si256(to, _mm256_permute2x128_si256(low[i], high[i], 0x20));
        _mm256_store_si256(to + 1, _mm256_permute2x128_si256(low[i], high[i], 0x31));
    }
}

// All channels of some rows before the next rows: so the activations are read in order, and from L1 by all taps.
template <int kRows>
inline void tile(const DepthwiseArgs& a, int64_t m, int64_t begin, int64_t end) {
    const int64_t pairs = (a.tap_count + 1) / 2;
    alignas(32) int32_t acc[kRows * kPanel];
    for (int64_t block = begin; block < end; ++block) {
        accumulate<kRows>(a, a.x + block * kPanel, a.rows + m, a.w + block * pairs * kPanel * 2, acc);
        PanelEpilogue<Avx2>(a.epilogue, a.y, block, a.channels - block * kPanel)(acc, kRows, a.y_rows + m);
    }
}

void multiply(const DepthwiseArgs& a, int64_t begin, int64_t end) {
    int64_t m = 0;
    for (; m + kTile <= a.m; m += kTile) tile<kTile>(a, m, begin, end);
    for (; m < a.m; ++m) tile<1>(a, m, begin, end);
}

}  // namespace

const DepthwiseKernel& depthwise_avx2() {
    static const DepthwiseKernel kernel = {convert_centered, multiply};
    return kernel;
}

}  // namespace zeropoint
