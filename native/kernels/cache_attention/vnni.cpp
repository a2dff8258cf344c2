#include "kernels/simd/avx512.h"
#include "kernels/cache_attention/template.h"

namespace zeropoint {
namespace {

// Keys become unsigned: sum q k = sum q (k + 128) - 128 sum q.
template <int kHeads>
inline void products_of(const ByteQueries& queries, const int8_t* block, int32_t* sums) {
    const __m512i flip = _mm512_set1_epi8(-128);
    __m512i found[kHeads];
    for (int h = 0; h < kHeads; ++h) found[h] = _mm512_set1_epi32(-128 * queries.sums[h]);
    for (int64_t d = 0; d < queries.dim; d += 4) {
        const __m512i keys = _mm512_xor_si512(_mm512_loadu_si512(block + d * kCacheBlock), flip);
        for (int h = 0; h < kHeads; ++h) {
            int32_t word;
            std::memcpy(&word, queries.q + h * queries.dim + d, sizeof word);
            found[h] = _mm512_dpbusd_epi32(found[h], keys, _mm512_set1_epi32(word));
        }
    }
    for (int h = 0; h < kHeads; ++h) _mm512_store_si512(sums + h * kCacheBlock, found[h]);
}

inline void byte_products(const ByteQueries& queries, int64_t heads, const int8_t* block, int32_t* sums) {
    switch (heads) {
        case 1: return products_of<1>(queries, block, sums);
        case 2: return products_of<2>(queries, block, sums);
        case 3: return products_of<3>(queries, block, sums);
        default: return products_of<4>(queries, block, sums);
    }
}

}  // namespace

void cache_attention_vnni(const CacheAttentionArgs& a) { cache_attention_with<Avx512, byte_products>(a); }

}  // namespace zeropoint
