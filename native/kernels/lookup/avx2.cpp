#include "kernels/lookup/lookup.h"

#include <immintrin.h>

namespace zeropoint {
namespace {

// The table as 16 rows of 16 entries. The low four bits of x pick an entry of every row; each of the upper four bits
// then halves the rows that are left.
struct Rows {
    __m256i row[16];

    explicit Rows(const uint8_t* table) {
        for (int r = 0; r < 16; ++r)
            row[r] = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table + 16 * r)));
    }

    __m256i operator()(__m256i x) const {
        const __m256i low = _mm256_and_si256(x, _mm256_set1_epi8(0x0F));
        // A blend looks at the top bit of each byte: shifted there, whatever comes in from the neighbour is ignored.
        const __m256i bit4 = _mm256_slli_epi16(x, 3), bit5 = _mm256_slli_epi16(x, 2), bit6 = _mm256_slli_epi16(x, 1);
        const auto two = [&](int r) {
            return _mm256_blendv_epi8(_mm256_shuffle_epi8(row[r], low), _mm256_shuffle_epi8(row[r + 1], low), bit4);
        };
        const auto four = [&](int r) { return _mm256_blendv_epi8(two(r), two(r + 2), bit5); };
        const auto eight = [&](int r) { return _mm256_blendv_epi8(four(r), four(r + 4), bit6); };
        return _mm256_blendv_epi8(eight(0), eight(8), x);
    }
};

}  // namespace

void lookup_avx2(const LookupArgs& a, int64_t begin, int64_t end) {
    const Rows rows(a.table);
    int64_t i = begin;
    for (; i + 32 <= end; i += 32) {
        const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(a.x + i));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(a.y + i), rows(x));
    }
    for (; i < end; ++i) a.y[i] = a.table[a.x[i]];
}

}  // namespace zeropoint
