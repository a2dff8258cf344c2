#include "kernels/pack/template.h"

#include <immintrin.h>

namespace zeropoint {
namespace {

// The same sums and shifts as avx2.cpp, with 512-bit lanes and narrowing conversions instead of packs.
struct Avx512Bulk {
    static int64_t pack4(const uint8_t* values, uint8_t* bytes, int64_t n) {
        int64_t i = 0;
        for (; i + 64 <= n; i += 64) {
            const __m512i v = _mm512_and_si512(_mm512_loadu_si512(values + i), _mm512_set1_epi8(0x0F));
            const __m512i b = _mm512_maddubs_epi16(v, _mm512_set1_epi16(0x1001));
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(bytes + i / 2), _mm512_cvtepi16_epi8(b));
        }
        return i;
    }
    static int64_t pack2(const uint8_t* values, uint8_t* bytes, int64_t n) {
        int64_t i = 0;
        for (; i + 64 <= n; i += 64) {
            const __m512i v = _mm512_and_si512(_mm512_loadu_si512(values + i), _mm512_set1_epi8(0x03));
            const __m512i b =
                _mm512_madd_epi16(_mm512_maddubs_epi16(v, _mm512_set1_epi16(0x0401)), _mm512_set1_epi32(0x00100001));
            _mm_storeu_si128(reinterpret_cast<__m128i*>(bytes + i / 4), _mm512_cvtepi32_epi8(b));
        }
        return i;
    }
    static int64_t unpack4(const uint8_t* bytes, uint8_t* values, int64_t n) {
        int64_t i = 0;
        for (; i + 64 <= n; i += 64) {
            const __m512i b = _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes + i / 2)));
            _mm512_storeu_si512(values + i,
                                _mm512_and_si512(_mm512_or_si512(b, _mm512_slli_epi16(b, 4)), _mm512_set1_epi8(0x0F)));
        }
        return i;
    }
    static int64_t unpack2(const uint8_t* bytes, uint8_t* values, int64_t n) {
        int64_t i = 0;
        for (; i + 64 <= n; i += 64) {
            const __m512i b = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + i / 4)));
            const __m512i low = _mm512_or_si512(b, _mm512_slli_epi32(b, 6));
            const __m512i high = _mm512_or_si512(_mm512_slli_epi32(b, 12), _mm512_slli_epi32(b, 18));
            _mm512_storeu_si512(values + i, _mm512_and_si512(_mm512_or_si512(low, high), _mm512_set1_epi8(0x03)));
        }
        return i;
    }
};

}  // namespace

void pack_avx512(const PackArgs& a, int64_t begin, int64_t end) { pack_with<Avx512Bulk>(a, begin, end); }
void unpack_avx512(const PackArgs& a, int64_t begin, int64_t end) { unpack_with<Avx512Bulk>(a, begin, end); }

}  // namespace zeropoint
