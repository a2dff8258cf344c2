// vpmaddwd multiplies pairs of int16 and adds the two products: exact, at the rate vpmaddubsw would have with its
// vpmaddwd, and without its saturation.
//
// Tiles of 6 rows x 16 output channels: 12 sums, 2 vectors of weights, 1 of activations and 1 product fill the 16
// registers. Weights are read as they are stored, a byte each, and widened: for a few rows in the inner loop, for many
// rows once for all of them, a block of kDepth channels at a time, which then stays in L1.
#include "kernels/gemm/avx2.h"
#include "kernels/gemm/centered.h"
#include "kernels/gemm/epilogue.h"
#include "kernels/gemm/winograd_avx2.h"
#include "kernels/simd/avx2.h"

namespace zeropoint {
namespace {

constexpr int64_t kDepth = 512;
// Up to so many rows, widening in the inner loop costs less than widening beforehand.
constexpr int64_t kFewRows = 12;
static_assert(kGemmRows % kTile == 0);

// One row against many weights: what counts is how fast these are read, and widening them takes longer than that.
// So the activation is cut in two, x = 16 high + low, both 0..15, and vpmaddubsw multiplies bytes with bytes. A pair of
// products is at most 2 * 15 * 128 = 3840, so 8 of them fit an int16 and nothing saturates.
constexpr int64_t kSteps = 8;
// The longest row, in pairs of channels, for which there is room on the stack.
constexpr int64_t kLongestRow = 4096;

// The pairs of a row, each twice, as vpbroadcastd wants them: [pair][low or high].
struct Halves {
    alignas(32) uint32_t pairs[2 * kLongestRow];

    explicit Halves(const GemmArgs& a) {
        const __m256i zero_point = _mm256_set1_epi16(static_cast<int16_t>(a.x_zero_point));
        const __m256i mask = _mm256_set1_epi16(15);
        const __m256i twice = _mm256_setr_epi8(0, 2, 0, 2, 4, 6, 4, 6, 8, 10, 8, 10, 12, 14, 12, 14,  //
                                               0, 2, 0, 2, 4, 6, 4, 6, 8, 10, 8, 10, 12, 14, 12, 14);
        const int64_t count = (a.channels + 1) / 2;
        uint32_t* to = pairs;
        for (int64_t t = 0; t < a.tap_count; ++t, to += 2 * count) {
            const int16_t* x = static_cast<const int16_t*>(a.x) + a.rows[0] + a.taps[t];
            // The last step may write beyond the tap, but not beyond the array: taps are written in order.
            for (int64_t c = 0; c < count; c += 8) {
                const __m256i v =
                    _mm256_add_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + 2 * c)), zero_point);
                const __m256i l = _mm256_shuffle_epi8(_mm256_and_si256(v, mask), twice);
                const __m256i h = _mm256_shuffle_epi8(_mm256_and_si256(_mm256_srli_epi16(v, 4), mask), twice);
                const __m256i first = _mm256_unpacklo_epi32(l, h), second = _mm256_unpackhi_epi32(l, h);
                __m256i* at = reinterpret_cast<__m256i*>(to + 2 * c);
                _mm256_storeu_si256(at, _mm256_permute2x128_si256(first, second, 0x20));
                _mm256_storeu_si256(at + 1, _mm256_permute2x128_si256(first, second, 0x31));
            }
        }
    }
};

bool is_long_row(const GemmArgs& a) {
    return a.m == 1 && a.w_zero_point == nullptr && a.tap_count * ((a.channels + 1) / 2) + kSteps <= kLongestRow;
}

// kPanels neighbouring panels: they share the loads of the activations.
template <int kPanels>
inline void multiply_row(const GemmArgs& a, const Halves& x, int64_t p) {
    const int64_t pairs = a.tap_count * ((a.channels + 1) / 2), panel_size = pairs * 2 * kPanel;
    const int8_t* w = a.panels + p * panel_size;
    const __m256i weigh = _mm256_set1_epi32(1 | 16 << 16);
    __m256i sum[kPanels][2], low[kPanels], high[kPanels];
    for (auto& s : sum) s[0] = s[1] = _mm256_setzero_si256();
    const auto step = [&](int64_t i, int64_t at) {
        const __m256i l = _mm256_set1_epi32(static_cast<int32_t>(x.pairs[2 * i]));
        const __m256i h = _mm256_set1_epi32(static_cast<int32_t>(x.pairs[2 * i + 1]));
        for (int j = 0; j < kPanels; ++j) {
            __m256i weights = _mm256_load_si256(reinterpret_cast<const __m256i*>(w + j * panel_size + at));
            // Else the compiler loads the weights for each product, and adds up in an order that needs more registers
            // than there are.
            __asm__("" : "+x"(weights));
            low[j] = _mm256_add_epi16(low[j], _mm256_maddubs_epi16(l, weights));
            high[j] = _mm256_add_epi16(high[j], _mm256_maddubs_epi16(h, weights));
            __asm__("" : "+x"(low[j]), "+x"(high[j]));
        }
    };
    const auto clear = [&] {
        for (int j = 0; j < kPanels; ++j) low[j] = high[j] = _mm256_setzero_si256();
    };
    const auto flush = [&] {
        for (int j = 0; j < kPanels; ++j) {
            const __m256i first = _mm256_madd_epi16(_mm256_unpacklo_epi16(low[j], high[j]), weigh);
            const __m256i second = _mm256_madd_epi16(_mm256_unpackhi_epi16(low[j], high[j]), weigh);
            sum[j][0] = _mm256_add_epi32(sum[j][0], first);
            sum[j][1] = _mm256_add_epi32(sum[j][1], second);
        }
    };
    int64_t i = 0;
    for (; i + kSteps <= pairs; i += kSteps, w += kSteps * 2 * kPanel) {
        clear();
#pragma GCC unroll 8
        for (int64_t k = 0; k < kSteps; ++k) step(i + k, k * 2 * kPanel);
        flush();
    }
    clear();
    for (; i < pairs; ++i, w += 2 * kPanel) step(i, 0);
    flush();
    const __m256i zero_point = _mm256_set1_epi32(a.x_zero_point);
    for (int j = 0; j < kPanels; ++j) {
        alignas(32) int32_t acc[kPanel];
        const __m256i* sums = reinterpret_cast<const __m256i*>(a.w_sums + (p + j) * kPanel);
        // Interleaving worked within 128-bit halves; and the zero point is still in x.
        const __m256i in_order[2] = {_mm256_permute2x128_si256(sum[j][0], sum[j][1], 0x20),
                                     _mm256_permute2x128_si256(sum[j][0], sum[j][1], 0x31)};
        for (int k = 0; k < 2; ++k)
            _mm256_store_si256(
                reinterpret_cast<__m256i*>(acc) + k,
                _mm256_sub_epi32(in_order[k], _mm256_mullo_epi32(_mm256_loadu_si256(sums + k), zero_point)));
        PanelEpilogue<Avx2>(a.epilogue, a.y, p + j, a.n - (p + j) * kPanel)(acc, 1, a.y_rows);
    }
}

__attribute__((noinline)) void multiply_row(const GemmArgs& a, int64_t begin, int64_t end) {
    const Halves x(a);
    int64_t p = begin;
    for (; p + 2 <= end; p += 2) multiply_row<2>(a, x, p);
    if (p < end) multiply_row<1>(a, x, p);
}

// wide[i] = w[i] - w_zero_point[channel of i], for blocks of 16 channels x 2.
void widen(const int8_t* w, int64_t count, const int32_t* w_zero_point, int16_t* wide) {
    const PairZeroPoints zero(w_zero_point);
    for (int64_t i = 0; i < count; i += 2 * kPanel)
        for (int j = 0; j < 2; ++j)
            _mm256_store_si256(reinterpret_cast<__m256i*>(wide + i + j * kPanel),
                               _mm256_sub_epi16(load_weights(w + i + j * kPanel), zero.half[j]));
}

void multiply(const GemmArgs& a, int64_t begin, int64_t end) {
    if (is_long_row(a)) return multiply_row(a, begin, end);
    const int16_t* const x = static_cast<const int16_t*>(a.x);
    const int64_t padded = (a.channels + 1) / 2 * 2, panel_size = a.tap_count * padded * kPanel;
    const bool few = a.m <= kFewRows && a.w_zero_point == nullptr;
    // Whole taps at a time, or equal parts of one.
    const int64_t parts = padded > kDepth ? (padded + kDepth - 1) / kDepth : 1;
    const int64_t part = ((padded + parts - 1) / parts + 1) / 2 * 2;
    const int64_t taps = padded > kDepth || padded == 0 ? 1 : kDepth / padded;
    alignas(64) int16_t wide[kDepth * kPanel];
    alignas(64) int32_t acc[kGemmRows * kPanel];
    for (int64_t p = begin; p < end; ++p) {
        const bool is_direct = DirectEpilogue::fits(a.epilogue, a.n - p * kPanel);
        const DirectEpilogue direct(a.epilogue, a.y, p);
        const PanelEpilogue<Avx2> finish(a.epilogue, a.y, p, a.n - p * kPanel);
        const Start begin_with{is_direct ? a.epilogue.bias + p * kPanel : kNoSums, 0};
        const auto run = [&](const Depth& d, const auto* w, bool first, bool last, const Ahead& ahead) {
            const Start start = first ? begin_with : Start{acc, kPanel};
            if (last && is_direct)
                return accumulate(x, a.rows, a.m, a.taps, d, w, start, ToBytes{direct, a.y_rows}, ahead);
            accumulate(x, a.rows, a.m, a.taps, d, w, start, ToSums{acc}, ahead);
            if (last) finish(acc, a.m, a.y_rows);
        };
        const int8_t* panel = a.panels + p * panel_size;
        if (few || panel_size == 0) {
            run({0, a.tap_count, 0, padded / 2}, panel, true, true, {});
            continue;
        }
        for (int64_t tap = 0; tap < a.tap_count; tap += taps)
            for (int64_t channel = 0; channel < padded; channel += part) {
                const int64_t tap_end = tap + taps < a.tap_count ? tap + taps : a.tap_count;
                const int64_t channels = padded - channel < part ? padded - channel : part;
                const Depth d{tap, tap_end, channel, channels / 2};
                const bool first = tap == 0 && channel == 0;
                const bool last = tap_end == a.tap_count && channel + channels == padded;
                const int8_t* block = panel + (tap * padded + channel) * kPanel;
                const int64_t size = (tap_end - tap) * channels * kPanel;
                widen(block, size, a.w_zero_point != nullptr ? a.w_zero_point + p * kPanel : nullptr, wide);
                // Weights that come from far away would otherwise be waited for when the next block is widened.
                const Ahead ahead{block + size, (size * kTile / a.m + 63) / 64 * 64};
                run(d, static_cast<const int16_t*>(wide), first, last, ahead);
            }
    }
}

}  // namespace

const GemmKernel& gemm_avx2() {
    // On Zen 4, stage by stage, for 64 to 512 channels: inputs 5 to 7, weights 3 to 3.6, sums 12 to 19.
    constexpr WinogradCosts kCosts = {5.5, 3.3, 16, 1};
    static const WinogradKernel winograd = {16, kCosts, winograd_transform<CenteredWords>,
                                            winograd_multiply<CenteredWords>};
    static const GemmKernel kernel = {{2, 2}, Operand::centered, convert_centered, multiply, &winograd};
    return kernel;
}

}  // namespace zeropoint
