#include "kernels/pack/template.h"

#include <immintrin.h>

namespace zeropoint {
namespace {

__m256i load(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
void store(uint8_t* p, __m256i a) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a); }

struct Avx2Bulk {
    // v[0] * 1 + v[1] * 16 in each 16-bit lane is the byte.
    static __m256i bytes4(const uint8_t* values) {
        const __m256i v = _mm256_and_si256(load(values), _mm256_set1_epi8(0x0F));
        return _mm256_maddubs_epi16(v, _mm256_set1_epi16(0x1001));
    }
    static int64_t pack4(const uint8_t* values, uint8_t* bytes, int64_t n) {
        int64_t i = 0;
        for (; i + 64 <= n; i += 64) {
            const __m256i packed = _mm256_packus_epi16(bytes4(values + i), bytes4(values + i + 32));
            store(bytes + i / 2, _mm256_permute4x64_epi64(packed, 0xD8));
        }
        for (; i + 32 <= n; i += 32) {
            const __m256i b = bytes4(values + i);
            const __m128i packed = _mm_packus_epi16(_mm256_castsi256_si128(b), _mm256_extracti128_si256(b, 1));
            _mm_storeu_si128(reinterpret_cast<__m128i*>(bytes + i / 2), packed);
        }
        return i;
    }
    // v[0] + v[1] * 4 in 16 bits, then (pair 0) + (pair 1) * 16 in 32 bits.
    static __m256i bytes2(const uint8_t* values) {
        const __m256i v = _mm256_and_si256(load(values), _mm256_set1_epi8(0x03));
        return _mm256_madd_epi16(_mm256_maddubs_epi16(v, _mm256_set1_epi16(0x0401)), _mm256_set1_epi32(0x00100001));
    }
    static int64_t pack2(const uint8_t* values, uint8_t* bytes, int64_t n) {
        int64_t i = 0;
        const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
        for (; i + 128 <= n; i += 128) {
            const __m256i a = _mm256_packus_epi32(bytes2(values + i), bytes2(values + i + 32));
            const __m256i b = _mm256_packus_epi32(bytes2(values + i + 64), bytes2(values + i + 96));
            store(bytes + i / 4, _mm256_permutevar8x32_epi32(_mm256_packus_epi16(a, b), order));
        }
        for (; i + 32 <= n; i += 32) {
            const __m256i b = bytes2(values + i);
            const __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(b), _mm256_extracti128_si256(b, 1));
            _mm_storel_epi64(reinterpret_cast<__m128i*>(bytes + i / 4), _mm_packus_epi16(words, words));
        }
        return i;
    }
    // A byte in a 16-bit lane, once more 4 bits up: the low half keeps v[0], the high half v[1].
    static int64_t unpack4(const uint8_t* bytes, uint8_t* values, int64_t n) {
        int64_t i = 0;
        for (; i + 32 <= n; i += 32) {
            const __m256i b = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + i / 2)));
            store(values + i, _mm256_and_si256(_mm256_or_si256(b, _mm256_slli_epi16(b, 4)), _mm256_set1_epi8(0x0F)));
        }
        return i;
    }
    static int64_t unpack2(const uint8_t* bytes, uint8_t* values, int64_t n) {
        int64_t i = 0;
        for (; i + 32 <= n; i += 32) {
            const __m256i b = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes + i / 4)));
            const __m256i low = _mm256_or_si256(b, _mm256_slli_epi32(b, 6));
            const __m256i high = _mm256_or_si256(_mm256_slli_epi32(b, 12), _mm256_slli_epi32(b, 18));
            store(values + i, _mm256_and_si256(_mm256_or_si256(low, high), _mm256_set1_epi8(0x03)));
        }
        return i;
    }
};

}  // namespace

void pack_avx2(const PackArgs& a, int64_t begin, int64_t end) { pack_with<Avx2Bulk>(a, begin, end); }
void unpack_avx2(const PackArgs& a, int64_t begin, int64_t end) { unpack_with<Avx2Bulk>(a, begin, end); }

}  // namespace zeropoint
