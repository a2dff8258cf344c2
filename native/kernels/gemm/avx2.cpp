// vpmaddwd multiplies pairs of int16 and adds the two products: exact, at the rate vpmaddubsw would have with its
// vpmaddwd, and without its saturation.
//
// Tiles of 6 rows x 16 output channels: 12 sums, 2 vectors of weights, 1 of activations and 1 product fill the 16
// registers. Weights are read as they are stored, a byte each, and widened: for a few rows in the inner loop, for many
// rows once for all of them, a block of kDepth channels at a time, which then stays in L1.
#include "kernels/gemm/centered.h"
#include "kernels/gemm/epilogue.h"
#include "kernels/simd/avx2.h"

namespace zeropoint {
namespace {

constexpr int kTile = 6;
constexpr int64_t kDepth = 512;
// Up to so many rows, widening in the inner loop costs less than widening beforehand.
constexpr int64_t kFewRows = 12;
static_assert(kGemmRows % kTile == 0);

// The taps [tap, tap_end) of which the channels [channel, channel + 2 * pairs) are summed.
struct Depth {
    int64_t tap, tap_end, channel, pairs;
};

inline __m256i load_weights(const int16_t* w) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(w)); }
inline __m256i load_weights(const int8_t* w) {
    return _mm256_cvtepi8_epi16(_mm_load_si128(reinterpret_cast<const __m128i*>(w)));
}

// acc[kRows][16] (+)= kRows rows times the weights of a panel at this depth.
// Not inlined: alone, the loop finds a register for every pointer.
template <int kRows, class W>
__attribute__((noinline)) void accumulate(const GemmArgs& a, const int64_t* rows, const Depth& d, const W* w,
                                          bool first, int32_t* acc) {
    __m256i sum[kRows][2];
    __m256i* const to = reinterpret_cast<__m256i*>(acc);
    for (int i = 0; i < kRows; ++i)
        for (int j = 0; j < 2; ++j) sum[i][j] = first ? _mm256_setzero_si256() : _mm256_load_si256(to + 2 * i + j);
    const int16_t* x = static_cast<const int16_t*>(a.x) + d.channel;
    for (int64_t t = d.tap; t < d.tap_end; ++t) {
        const int16_t* row[kRows];
        for (int i = 0; i < kRows; ++i) row[i] = x + rows[i] + a.taps[t];
        for (int64_t c = 0; c < d.pairs; ++c, w += 2 * kPanel) {
            const __m256i w0 = load_weights(w), w1 = load_weights(w + kPanel);
#pragma GCC unroll 6
            for (int i = 0; i < kRows; ++i) {
                const __m256i v = _mm256_broadcastd_epi32(_mm_loadu_si32(row[i] + 2 * c));
                sum[i][0] = _mm256_add_epi32(sum[i][0], _mm256_madd_epi16(v, w0));
                sum[i][1] = _mm256_add_epi32(sum[i][1], _mm256_madd_epi16(v, w1));
            }
        }
    }
    for (int i = 0; i < kRows; ++i)
        for (int j = 0; j < 2; ++j) _mm256_store_si256(to + 2 * i + j, sum[i][j]);
}

template <class W>
inline void accumulate(const GemmArgs& a, const int64_t* rows, int64_t count, const Depth& d, const W* w, bool first,
                       int32_t* acc) {
    switch (count) {
        case 1: return accumulate<1>(a, rows, d, w, first, acc);
        case 2: return accumulate<2>(a, rows, d, w, first, acc);
        case 3: return accumulate<3>(a, rows, d, w, first, acc);
        case 4: return accumulate<4>(a, rows, d, w, first, acc);
        case 5: return accumulate<5>(a, rows, d, w, first, acc);
        default: return accumulate<6>(a, rows, d, w, first, acc);
    }
}

// wide[i] = w[i] - w_zero_point[channel of i], for blocks of 16 channels x 2.
void widen(const int8_t* w, int64_t count, const int32_t* w_zero_point, int16_t* wide) {
    __m256i zero[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    if (w_zero_point != nullptr) {
        alignas(32) int16_t pairs[2 * kPanel];
        for (int i = 0; i < 2 * kPanel; ++i) pairs[i] = static_cast<int16_t>(w_zero_point[i / 2]);
        for (int j = 0; j < 2; ++j) zero[j] = load_weights(pairs + j * kPanel);
    }
    for (int64_t i = 0; i < count; i += 2 * kPanel)
        for (int j = 0; j < 2; ++j)
            _mm256_store_si256(reinterpret_cast<__m256i*>(wide + i + j * kPanel),
                               _mm256_sub_epi16(load_weights(w + i + j * kPanel), zero[j]));
}

void multiply(const GemmArgs& a, int64_t begin, int64_t end) {
    const int64_t padded = (a.channels + 1) / 2 * 2, panel_size = a.tap_count * padded * kPanel;
    const bool few = a.m <= kFewRows && a.w_zero_point == nullptr;
    // Whole taps at a time, or equal parts of one.
    const int64_t parts = padded > kDepth ? (padded + kDepth - 1) / kDepth : 1;
    const int64_t part = ((padded + parts - 1) / parts + 1) / 2 * 2;
    const int64_t taps = padded > kDepth || padded == 0 ? 1 : kDepth / padded;
    alignas(64) int16_t wide[kDepth * kPanel];
    alignas(64) int32_t acc[kGemmRows * kPanel];
    for (int64_t p = begin; p < end; ++p) {
        const PanelEpilogue<Avx2> finish(a.epilogue, a.y, p, a.n - p * kPanel);
        const int8_t* panel = a.panels + p * panel_size;
        if (few || panel_size == 0) {
            const Depth all{0, a.tap_count, 0, padded / 2};
            for (int64_t m = 0; m < a.m; m += kTile) {
                const int64_t count = a.m - m < kTile ? a.m - m : kTile;
                accumulate(a, a.rows + m, count, all, panel, true, acc);
                finish(acc, count, a.y_rows + m);
            }
            continue;
        }
        for (int64_t tap = 0; tap < a.tap_count; tap += taps)
            for (int64_t channel = 0; channel < padded; channel += part) {
                const int64_t tap_end = tap + taps < a.tap_count ? tap + taps : a.tap_count;
                const int64_t channels = padded - channel < part ? padded - channel : part;
                const Depth d{tap, tap_end, channel, channels / 2};
                const bool first = tap == 0 && channel == 0;
                const bool last = tap_end == a.tap_count && channel + channels == padded;
                widen(panel + (tap * padded + channel) * kPanel, (tap_end - tap) * channels * kPanel,
                      a.w_zero_point != nullptr ? a.w_zero_point + p * kPanel : nullptr, wide);
                for (int64_t m = 0; m < a.m; m += kTile) {
                    const int64_t count = a.m - m < kTile ? a.m - m : kTile;
                    accumulate(a, a.rows + m, count, d, static_cast<const int16_t*>(wide), first, acc + m * kPanel);
                    if (last) finish(acc + m * kPanel, count, a.y_rows + m);
                }
            }
    }
}

}  // namespace

const GemmKernel& gemm_avx2() {
    static const GemmKernel kernel = {{2, 2}, Operand::centered, convert_centered, multiply};
    return kernel;
}

}  // namespace zeropoint
