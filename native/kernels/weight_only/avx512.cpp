#include "kernels/simd/avx512.h"
#include "kernels/weight_only/template.h"

namespace zeropoint {
namespace {

struct Weights {
    static constexpr float kBias = 0;

    static int place(int n) { return n; }
    static __m512 load(const float* w) { return Avx512::load(w); }
    static __m512 load(const uint16_t* w) {
        return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(w)));
    }
    static __m512 widened(__m128i q) { return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(q)); }
    template <class Use>
    __attribute__((always_inline)) static void bytes(const uint8_t* p, const Use& use) {
#pragma GCC unroll 2
        for (int v = 0; v < 2; ++v) use(0, v, widened(_mm_load_si128(reinterpret_cast<const __m128i*>(p + v * 16))));
    }
    template <class Use>
    __attribute__((always_inline)) static void nibbles(const uint8_t* p, const Use& use) {
        const __m128i mask = _mm_set1_epi8(15);
        const __m128i q[2] = {_mm_load_si128(reinterpret_cast<const __m128i*>(p)),
                              _mm_load_si128(reinterpret_cast<const __m128i*>(p + 16))};
#pragma GCC unroll 2
        for (int v = 0; v < 2; ++v) use(0, v, widened(_mm_and_si128(q[v], mask)));
#pragma GCC unroll 2
        for (int v = 0; v < 2; ++v) use(1, v, widened(_mm_and_si128(_mm_srli_epi16(q[v], 4), mask)));
    }
    template <class Use>
    __attribute__((always_inline)) static void halves(const uint16_t* p, const Use& use) {
#pragma GCC unroll 2
        for (int v = 0; v < 2; ++v) use(0, v, load(p + v * 16));
    }
};

}  // namespace

const WeightOnlyKernel& weight_only_avx512() {
    static const WeightOnlyKernel kernel = {Weights::place, WeightOnly<Avx512, Weights>::multiply};
    return kernel;
}

}  // namespace zeropoint
