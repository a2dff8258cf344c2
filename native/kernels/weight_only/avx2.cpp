#include "kernels/simd/avx2.h"
#include "kernels/weight_only/template.h"

namespace zeropoint {
namespace {

// A byte q below the exponent of 2^23 is the float 2^23 + q: two rounds of interleaving with constants make floats of
// bytes without a conversion, and the subtraction of the zero point takes the 2^23 away.
struct Weights {
    static constexpr float kBias = 8388608.0f;

    // Interleaving works within 128-bit halves: outputs 4 to 7 of each vector come from the upper half.
    static int place(int n) { return n % 4 + n / 8 * 4 + n / 4 % 2 * 16; }
    static __m256 load(const float* w) { return Avx2::load(w); }
    static __m256 load(const uint16_t* w) {
        return _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(w)));
    }
    template <class Use>
    __attribute__((always_inline)) static void widened(__m256i q, int input, const Use& use) {
        const __m256i zero = _mm256_setzero_si256(), exponent = _mm256_set1_epi16(0x4B00);
        const __m256i low = _mm256_unpacklo_epi8(q, zero);
        use(input, 0, _mm256_castsi256_ps(_mm256_unpacklo_epi16(low, exponent)));
        use(input, 1, _mm256_castsi256_ps(_mm256_unpackhi_epi16(low, exponent)));
        const __m256i high = _mm256_unpackhi_epi8(q, zero);
        use(input, 2, _mm256_castsi256_ps(_mm256_unpacklo_epi16(high, exponent)));
        use(input, 3, _mm256_castsi256_ps(_mm256_unpackhi_epi16(high, exponent)));
    }
    template <class Use>
    __attribute__((always_inline)) static void bytes(const uint8_t* p, const Use& use) {
        widened(_mm256_load_si256(reinterpret_cast<const __m256i*>(p)), 0, use);
    }
    template <class Use>
    __attribute__((always_inline)) static void nibbles(const uint8_t* p, const Use& use) {
        const __m256i q = _mm256_load_si256(reinterpret_cast<const __m256i*>(p)), mask = _mm256_set1_epi8(15);
        widened(_mm256_and_si256(q, mask), 0, use);
        widened(_mm256_and_si256(_mm256_srli_epi16(q, 4), mask), 1, use);
    }
    template <class Use>
    __attribute__((always_inline)) static void halves(const uint16_t* p, const Use& use) {
#pragma GCC unroll 4
        for (int v = 0; v < 4; ++v) use(0, v, load(p + v * 8));
    }
};

}  // namespace

const WeightOnlyKernel& weight_only_avx2() {
    static const WeightOnlyKernel kernel = {Weights::place, WeightOnly<Avx2, Weights>::multiply};
    return kernel;
}

}  // namespace zeropoint
