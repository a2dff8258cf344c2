// The epilogue of whole panels to bytes with nothing but scale, bias and bounds, on sums that are still in registers.
// Everything else goes through memory to PanelEpilogue.
#pragma once

#include "kernels/gemm/gemm.h"

#include <immintrin.h>

namespace zeropoint {
namespace {

// How 16 sums lie in two vectors: in order; or, as interleaving within 128-bit halves leaves them, the channels 0-3 and
// 8-11, then 4-7 and 12-15.
enum class SumOrder { plain, split };

class DirectEpilogue {
public:
    static bool fits(const Epilogue& e, int64_t channels_left) {
        return e.type != OutputType::f32 && e.z == nullptr && !e.leaky() && e.after == nullptr &&
               channels_left >= kPanel;
    }

    // The sums must have e.bias already.
    DirectEpilogue(const Epilogue& e, void* y, int64_t panel)
        : DirectEpilogue(e, y, panel, e.multiplier + panel * kPanel, e.float_bias + panel * kPanel) {}
    // 16 multipliers and biases, in the order of the sums.
    DirectEpilogue(const Epilogue& e, void* y, int64_t panel, const float* multiplier, const float* float_bias)
        : multiplier_(multiplier),
          float_bias_(float_bias),
          y_(static_cast<uint8_t*>(y) + panel * kPanel),
          high_(static_cast<float>(e.hi - e.zero_point)),
          zero_point_(static_cast<int16_t>(e.zero_point)),
          lo_(static_cast<int16_t>(e.lo)) {}

    template <SumOrder kOrder = SumOrder::plain, int kRows>
    __attribute__((always_inline)) void store(const __m256i (&sum)[kRows][2], const int64_t* y_rows) const {
        const __m256 multiplier[2] = {_mm256_loadu_ps(multiplier_), _mm256_loadu_ps(multiplier_ + 8)};
        const __m256 float_bias[2] = {_mm256_loadu_ps(float_bias_), _mm256_loadu_ps(float_bias_ + 8)};
        const __m256 high = _mm256_set1_ps(high_);
        const __m256i zero_point = _mm256_set1_epi16(zero_point_), lo = _mm256_set1_epi16(lo_);
        uint8_t* const y = y_;
        // 16 bits are enough after the first pack, which saturates; the upper bound is taken before the conversion,
        // which could overflow.
        const auto words = [&](const __m256i(&s)[2]) __attribute__((always_inline)) {
            __m256i q[2];
#pragma GCC unroll 2
            for (int j = 0; j < 2; ++j) {
                const __m256 v = _mm256_add_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(s[j]), multiplier[j]), float_bias[j]);
                q[j] = _mm256_cvtps_epi32(_mm256_min_ps(v, high));
            }
            const __m256i shifted = _mm256_adds_epi16(_mm256_packs_epi32(q[0], q[1]), zero_point);
            return _mm256_and_si256(_mm256_max_epi16(shifted, lo), _mm256_set1_epi16(0xFF));
        };
        // Two rows at a time: packing works within 128-bit halves, so each has half of both.
#pragma GCC unroll 3
        for (int i = 0; i + 2 <= kRows; i += 2) {
            const __m256i bytes = _mm256_packus_epi16(words(sum[i]), words(sum[i + 1]));
            const __m256i in_order = kOrder == SumOrder::plain
                                         ? _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7))
                                         : _mm256_permute4x64_epi64(bytes, 0xD8);
            _mm_storeu_si128(reinterpret_cast<__m128i*>(y + y_rows[i]), _mm256_castsi256_si128(in_order));
            _mm_storeu_si128(reinterpret_cast<__m128i*>(y + y_rows[i + 1]), _mm256_extracti128_si256(in_order, 1));
        }
        if constexpr (kRows % 2 == 1) {
            const __m256i last = words(sum[kRows - 1]);
            const __m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(last), _mm256_extracti128_si256(last, 1));
            _mm_storeu_si128(reinterpret_cast<__m128i*>(y + y_rows[kRows - 1]),
                             kOrder == SumOrder::plain ? _mm_shuffle_epi32(bytes, 0xD8) : bytes);
        }
    }

private:
    const float *multiplier_, *float_bias_;
    uint8_t* y_;
    float high_;
    int16_t zero_point_, lo_;
};

}  // namespace
}  // namespace zeropoint
