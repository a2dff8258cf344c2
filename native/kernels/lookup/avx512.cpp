#include "cpu/features.h"
#include "kernels/lookup/lookup.h"

#include <immintrin.h>

namespace zeropoint {
namespace {

// The same halving of 16 rows as avx2.cpp; the first comes free with a masked shuffle.
struct LookupRows {
    __m512i row[16];

    explicit LookupRows(const uint8_t* table) {
        for (int r = 0; r < 16; ++r)
            row[r] = _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table + 16 * r)));
    }

    __m512i operator()(__m512i x) const {
        const __m512i low = _mm512_and_si512(x, _mm512_set1_epi8(0x0F));
        const __mmask64 bit4 = _mm512_test_epi8_mask(x, _mm512_set1_epi8(0x10));
        const __mmask64 bit5 = _mm512_test_epi8_mask(x, _mm512_set1_epi8(0x20));
        const __mmask64 bit6 = _mm512_test_epi8_mask(x, _mm512_set1_epi8(0x40));
        const __mmask64 bit7 = _mm512_movepi8_mask(x);
        const auto two = [&](int r) {
            return _mm512_mask_shuffle_epi8(_mm512_shuffle_epi8(row[r], low), bit4, row[r + 1], low);
        };
        const auto four = [&](int r) { return _mm512_mask_blend_epi8(bit5, two(r), two(r + 2)); };
        const auto eight = [&](int r) { return _mm512_mask_blend_epi8(bit6, four(r), four(r + 4)); };
        return _mm512_mask_blend_epi8(bit7, eight(0), eight(8));
    }
};

// With VBMI, whose shuffle looks 7 bits up.
__attribute__((target("avx512vbmi"))) void lookup_vbmi(const LookupArgs& a, int64_t begin, int64_t end) {
    const __m512i t0 = _mm512_loadu_si512(a.table), t1 = _mm512_loadu_si512(a.table + 64);
    const __m512i t2 = _mm512_loadu_si512(a.table + 128), t3 = _mm512_loadu_si512(a.table + 192);
    const auto found = [&](__m512i x) __attribute__((target("avx512vbmi"), always_inline)) {
        const __m512i low = _mm512_permutex2var_epi8(t0, x, t1), high = _mm512_permutex2var_epi8(t2, x, t3);
        return _mm512_mask_blend_epi8(_mm512_movepi8_mask(x), low, high);
    };
    int64_t i = begin;
    for (; i + 64 <= end; i += 64) _mm512_storeu_si512(a.y + i, found(_mm512_loadu_si512(a.x + i)));
    if (i < end) {
        const __mmask64 rest = (__mmask64{1} << (end - i)) - 1;
        _mm512_mask_storeu_epi8(a.y + i, rest, found(_mm512_maskz_loadu_epi8(rest, a.x + i)));
    }
}

}  // namespace

void lookup_avx512_without_vbmi(const LookupArgs& a, int64_t begin, int64_t end) {
    const LookupRows rows(a.table);
    int64_t i = begin;
    for (; i + 64 <= end; i += 64) _mm512_storeu_si512(a.y + i, rows(_mm512_loadu_si512(a.x + i)));
    if (i < end) {
        const __mmask64 rest = (__mmask64{1} << (end - i)) - 1;
        _mm512_mask_storeu_epi8(a.y + i, rest, rows(_mm512_maskz_loadu_epi8(rest, a.x + i)));
    }
}

void lookup_avx512(const LookupArgs& a, int64_t begin, int64_t end) {
    static const LookupFn kernel = cpu_features().has(feature::avx512_vbmi) ? lookup_vbmi : lookup_avx512_without_vbmi;
    kernel(a, begin, end);
}

}  // namespace zeropoint
