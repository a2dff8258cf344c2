// lookup in place, for a few bytes here and there: what a tile of gemm has just written.
#pragma once

#include "kernels/lookup/rows_avx512.h"

namespace zeropoint {
namespace {

// y[at[i] + k] = table[y[at[i] + k]] for k < length, at most 64, at each of `count` places.
using LookUpPlaces = void (*)(const uint8_t* table, uint8_t* y, const int64_t* at, int count, int64_t length);

inline __mmask64 first_bytes(int64_t length) { return length < 64 ? (__mmask64{1} << length) - 1 : ~__mmask64{0}; }

inline void look_up_places(const uint8_t* table, uint8_t* y, const int64_t* at, int count, int64_t length) {
    const LookupRows rows(table);
    const __mmask64 there = first_bytes(length);
    for (int i = 0; i < count; ++i)
        _mm512_mask_storeu_epi8(y + at[i], there, rows(_mm512_maskz_loadu_epi8(there, y + at[i])));
}

// With VBMI, whose shuffle looks 7 bits up.
__attribute__((target("avx512vbmi"))) inline void look_up_places_vbmi(const uint8_t* table, uint8_t* y,
                                                                      const int64_t* at, int count, int64_t length) {
    const __mmask64 there = first_bytes(length);
    const __m512i t0 = _mm512_loadu_si512(table), t1 = _mm512_loadu_si512(table + 64);
    const __m512i t2 = _mm512_loadu_si512(table + 128), t3 = _mm512_loadu_si512(table + 192);
    for (int i = 0; i < count; ++i) {
        const __m512i x = _mm512_maskz_loadu_epi8(there, y + at[i]);
        const __m512i low = _mm512_permutex2var_epi8(t0, x, t1), high = _mm512_permutex2var_epi8(t2, x, t3);
        _mm512_mask_storeu_epi8(y + at[i], there, _mm512_mask_blend_epi8(_mm512_movepi8_mask(x), low, high));
    }
}

}  // namespace
}  // namespace zeropoint
