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

// The sums of kRows rows in registers: low has the channels 0-3 and 8-11, high has 4-7 and 12-15.
template <int kRows>
struct Sums {
    __m256i low[kRows], high[kRows];

    Sums(const DepthwiseArgs& a, const int16_t* x, const int64_t* rows, const int16_t* w) {
        // Local, because a member would be stored at every step.
        __m256i lows[kRows], highs[kRows];
        const int16_t* row[kRows];
        for (int i = 0; i < kRows; ++i) {
            lows[i] = highs[i] = _mm256_setzero_si256();
            row[i] = x + rows[i];
        }
        for (int64_t t = 0; t < a.tap_count; t += 2, w += 2 * kPanel) {
            const int64_t first = a.taps[t], second = a.taps[t + 1 < a.tap_count ? t + 1 : t];
            // Weights as the halves are interleaved: channels 0-3 and 8-11 with 4-7 and 12-15.
            const __m256i w0 = load(w), w1 = load(w + kPanel);
            const __m256i w_low = _mm256_permute2x128_si256(w0, w1, 0x20),
                          w_high = _mm256_permute2x128_si256(w0, w1, 0x31);
#pragma GCC unroll 4
            for (int i = 0; i < kRows; ++i) {
                const __m256i x0 = load(row[i] + first), x1 = load(row[i] + second);
                lows[i] = _mm256_add_epi32(lows[i], _mm256_madd_epi16(_mm256_unpacklo_epi16(x0, x1), w_low));
                highs[i] = _mm256_add_epi32(highs[i], _mm256_madd_epi16(_mm256_unpackhi_epi16(x0, x1), w_high));
            }
        }
        for (int i = 0; i < kRows; ++i) {
            low[i] = lows[i];
            high[i] = highs[i];
        }
    }
};

// The epilogue of whole blocks to bytes, with nothing but scale, bias and bounds: straight from the registers, in their
// order, which packing to 16 bits undoes. Else the sums go through memory to PanelEpilogue.
class Direct {
public:
    static bool fits(const Epilogue& e, int64_t channels_left) {
        return e.type != OutputType::f32 && e.z == nullptr && !e.leaky && e.table == nullptr && channels_left >= kPanel;
    }

    Direct(const Epilogue& e, int64_t block)
        : high_(_mm256_set1_ps(static_cast<float>(e.hi - e.zero_point))),
          zero_point_(_mm256_set1_epi16(static_cast<int16_t>(e.zero_point))),
          lo_(_mm256_set1_epi16(static_cast<int16_t>(e.lo))) {
        const int64_t n = block * kPanel;
        split(e.multiplier + n, multiplier_);
        split(e.float_bias + n, float_bias_);
        const __m256i b0 = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(e.bias + n)),
                      b1 = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(e.bias + n + 8));
        bias_[0] = _mm256_permute2x128_si256(b0, b1, 0x20);
        bias_[1] = _mm256_permute2x128_si256(b0, b1, 0x31);
    }

    void operator()(__m256i low, __m256i high, uint8_t* y) const {
        const __m256i words = _mm256_packs_epi32(rounded(low, 0), rounded(high, 1));
        const __m256i q = _mm256_max_epi16(_mm256_adds_epi16(words, zero_point_), lo_);
        const __m256i bytes = _mm256_and_si256(q, _mm256_set1_epi16(0xFF));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(y),
                         _mm_packus_epi16(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1)));
    }

private:
    static void split(const float* values, __m256* to) {
        const __m256 v0 = _mm256_loadu_ps(values), v1 = _mm256_loadu_ps(values + 8);
        to[0] = _mm256_permute2f128_ps(v0, v1, 0x20);
        to[1] = _mm256_permute2f128_ps(v0, v1, 0x31);
    }
    __m256i rounded(__m256i sum, int half) const {
        const __m256 v = _mm256_cvtepi32_ps(_mm256_add_epi32(sum, bias_[half]));
        const __m256 scaled = _mm256_add_ps(_mm256_mul_ps(v, multiplier_[half]), float_bias_[half]);
        return _mm256_cvtps_epi32(_mm256_min_ps(scaled, high_));
    }

    __m256 multiplier_[2], float_bias_[2], high_;
    __m256i bias_[2], zero_point_, lo_;
};

template <int kRows>
inline void tile(const DepthwiseArgs& a, int64_t m, int64_t block, const Direct* direct) {
    const int64_t pairs = (a.tap_count + 1) / 2;
    const Sums<kRows> sums(a, a.x + block * kPanel, a.rows + m, a.w + block * pairs * kPanel * 2);
    if (direct != nullptr) {
        uint8_t* const y = static_cast<uint8_t*>(a.y) + block * kPanel;
        for (int i = 0; i < kRows; ++i) (*direct)(sums.low[i], sums.high[i], y + a.y_rows[m + i]);
        return;
    }
    alignas(32) int32_t acc[kRows * kPanel];
    for (int i = 0; i < kRows; ++i) {
        // 128-bit halves in the order of the channels: 0-3, 4-7, 8-11, 12-15.
        __m256i* to = reinterpret_cast<__m256i*>(acc + i * kPanel);
        _mm256_store_si256(to, _mm256_permute2x128_si256(sums.low[i], sums.high[i], 0x20));
        _mm256_store_si256(to + 1, _mm256_permute2x128_si256(sums.low[i], sums.high[i], 0x31));
    }
    PanelEpilogue<Avx2>(a.epilogue, a.y, block, a.channels - block * kPanel)(acc, kRows, a.y_rows + m);
}

// A block of channels for a few pixels of rows at a time, so that the activations stay in L1 for all taps and blocks.
void multiply(const DepthwiseArgs& a, int64_t begin, int64_t end) {
    constexpr int64_t kTogether = 8 * kTile;
    for (int64_t first = 0; first < a.m; first += kTogether) {
        const int64_t past = first + kTogether < a.m ? first + kTogether : a.m;
        for (int64_t block = begin; block < end; ++block) {
            const bool fits = Direct::fits(a.epilogue, a.channels - block * kPanel);
            const Direct direct(a.epilogue, block);
            int64_t m = first;
            for (; m + kTile <= past; m += kTile) tile<kTile>(a, m, block, fits ? &direct : nullptr);
            for (; m < past; ++m) tile<1>(a, m, block, fits ? &direct : nullptr);
        }
    }
}

}  // namespace

const DepthwiseKernel& depthwise_avx2() {
    static const DepthwiseKernel kernel = {convert_centered, multiply};
    return kernel;
}

}  // namespace zeropoint
