// Products of 16 bits added to sums of 32: vpmaddwd and vpaddd, or vpdpwssd in files that are compiled for it.
#pragma once

#include <cstdint>
#include <cstring>
#include <immintrin.h>

namespace zeropoint {
namespace {

// s0 += x w0, s1 += x w1, with one pair of activations for all.
#if defined(__AVXVNNI__) || defined(__AVX512VNNI__)
inline __attribute__((always_inline)) void multiply_add(const int16_t* x, __m256i w0, __m256i w1, __m256i& s0,
                                                        __m256i& s1) {
    int32_t two;
    std::memcpy(&two, x, sizeof two);
    const __m256i pair = _mm256_set1_epi32(two);
    s0 = _mm256_dpwssd_epi32(s0, pair, w0);
    s1 = _mm256_dpwssd_epi32(s1, pair, w1);
}
#else
// In this order, and with these two registers beside the sums and the weights: compilers load activations ahead, and
// then have no registers left for the sums.
inline __attribute__((always_inline)) void multiply_add(const int16_t* x, __m256i w0, __m256i w1, __m256i& s0,
                                                        __m256i& s1) {
    struct Pair {
        int16_t values[2];
    };
    __m256i pair, product;
    __asm__ volatile("vpbroadcastd %[x], %[pair]\n\t"
                     "vpmaddwd %[w0], %[pair], %[product]\n\t"
                     "vpaddd %[product], %[s0], %[s0]\n\t"
                     "vpmaddwd %[w1], %[pair], %[pair]\n\t"
                     "vpaddd %[pair], %[s1], %[s1]"
                     : [s0] "+x"(s0), [s1] "+x"(s1), [pair] "=&x"(pair), [product] "=&x"(product)
                     : [x] "m"(*reinterpret_cast<const Pair*>(x)), [w0] "x"(w0), [w1] "x"(w1));
}
#endif

}  // namespace
}  // namespace zeropoint
