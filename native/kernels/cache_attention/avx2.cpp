#include "kernels/simd/avx2.h"
#include "kernels/cache_attention/template.h"

namespace zeropoint {
namespace {

inline void byte_products(const ByteQueries& queries, int64_t heads, const int8_t* block, int32_t* sums) {
    const __m256i ones = _mm256_set1_epi16(1);
    for (int64_t h = 0; h < heads; ++h) {
        const int8_t* q = queries.q + h * queries.dim;
        __m256i low = _mm256_setzero_si256(), high = low;
        for (int64_t d = 0; d < queries.dim; d += 4) {
            int32_t word;
            std::memcpy(&word, q + d, sizeof word);
            const __m256i x = _mm256_set1_epi32(word);
            const auto products = [&](const int8_t* p) {
                const __m256i k = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
                // 2 * 128 * 127 fits in 16 bits.
                return _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_abs_epi8(k), _mm256_sign_epi8(x, k)), ones);
            };
            low = _mm256_add_epi32(low, products(block + d * kCacheBlock));
            high = _mm256_add_epi32(high, products(block + d * kCacheBlock + 32));
        }
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums + h * kCacheBlock), low);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums + h * kCacheBlock + 8), high);
    }
}

}  // namespace

void cache_attention_avx2(const CacheAttentionArgs& a) { cache_attention_with<Avx2, byte_products>(a); }

}  // namespace zeropoint
