// Activations as centered int16 (see Operand).
#pragma once

#include "kernels/gemm/gemm.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace zeropoint {
namespace {

inline void convert_centered(const uint8_t* x, int64_t n, const Activation& a, void* to) {
    int16_t* __restrict y = static_cast<int16_t*>(to);
    // s8 bits xor 128 are x + 128 as a u8.
    const uint8_t flip = a.is_signed ? 0x80 : 0;
    const int16_t zero_point = static_cast<int16_t>(a.shifted_zero_point());
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
#endif
    for (; i < n; ++i) y[i] = static_cast<int16_t>((x[i] ^ flip) - zero_point);
}

}  // namespace
}  // namespace zeropoint
