// Loops over bytes, by vectors where the file is compiled for them; what is left of less than a vector is the caller's.
#pragma once

#include <cstdint>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace zeropoint {
namespace {

// y[i] = (x[i] ^ flip) - zero_point. Returns how many were done.
[[maybe_unused]] inline int64_t center_bytes(const uint8_t* x, int64_t n, uint8_t flip, int16_t zero_point,
                                             int16_t* __restrict y) {
    int64_t i = 0;
#if defined(__AVX2__)
    for (; i + 32 <= n; i += 32) {
        const __m256i bytes = _mm256_xor_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + i)),
                                               _mm256_set1_epi8(static_cast<char>(flip)));
        const __m256i low = _mm256_cvtepu8_epi16(_mm256_castsi256_si128(bytes));
        const __m256i high = _mm256_cvtepu8_epi16(_mm256_extracti128_si256(bytes, 1));
        __m256i* to16 = reinterpret_cast<__m256i*>(y + i);
        _mm256_storeu_si256(to16, _mm256_sub_epi16(low, _mm256_set1_epi16(zero_point)));
        _mm256_storeu_si256(to16 + 1, _mm256_sub_epi16(high, _mm256_set1_epi16(zero_point)));
    }
#else
    (void)x, (void)n, (void)flip, (void)zero_point, (void)y;
#endif
    return i;
}

// The sum of the whole sixteens of bytes from i on; i moves behind them.
[[maybe_unused]] inline int64_t sum_of_sixteens(const uint8_t* x, int64_t& i, int64_t length, uint8_t flip) {
    int64_t sum = 0;
#if defined(__SSE2__)
    const __m128i flips = _mm_set1_epi8(static_cast<char>(flip)), zero = _mm_setzero_si128();
    __m128i sums = zero;
    for (; i + 16 <= length; i += 16) {
        const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(x + i));
        sums = _mm_add_epi64(sums, _mm_sad_epu8(_mm_xor_si128(bytes, flips), zero));
    }
    sum = _mm_cvtsi128_si64(_mm_add_epi64(sums, _mm_unpackhi_epi64(sums, sums)));
#else
    (void)x, (void)i, (void)length, (void)flip;
#endif
    return sum;
}

}  // namespace
}  // namespace zeropoint
