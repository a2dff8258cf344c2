#include "kernels/simd/avx2.h"
#include "kernels/cache_attention/template.h"

namespace zeropoint {
namespace {

inline void byte_products(const int8_t* q, const int8_t* block, int64_t quads, int32_t* sums) {
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i low = _mm256_setzero_si256(), high = low;
    for (int64_t c = 0; c < quads; ++c) {
        int32_t word;
        std::memcpy(&word, q + c * 4, sizeof word);
        const __m256i x = _mm256_set1_epi32(word);
        const auto products = [&](const int8_t* p) {
            const __m256i k = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
            // 2 * 128 * 127 fits in 16 bits.
            return _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_abs_epi8(k), _mm256_sign_epi8(x, k)), ones);
        };
        low = _mm256_add_epi32(low, products(block + c * 64));
        high = _mm256_add_epi32(high, products(block + c * 64 + 32));
    }
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums), low);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums + 8), high);
}

}  // namespace

void cache_attention_avx2(const CacheAttentionArgs& a) { cache_attention_with<Avx2, byte_products>(a); }

}  // namespace zeropoint
