#include "kernels/simd/avx512.h"
#include "kernels/cache_attention/template.h"

namespace zeropoint {
namespace {

// Keys become unsigned: sum q k = sum q (k + 128) - 128 sum q.
inline void byte_products(const int8_t* q, const int8_t* block, int64_t quads, int32_t* sums) {
    const __m512i flip = _mm512_set1_epi8(-128);
    __m512i even = _mm512_setzero_si512(), odd = even, shift = even;
    const auto add = [&](__m512i sum, int64_t c) {
        int32_t word;
        std::memcpy(&word, q + c * 4, sizeof word);
        const __m512i x = _mm512_set1_epi32(word);
        shift = _mm512_dpbusd_epi32(shift, flip, x);
        return _mm512_dpbusd_epi32(sum, _mm512_xor_si512(_mm512_loadu_si512(block + c * 64), flip), x);
    };
    for (int64_t c = 0; c < quads; c += 2) {
        even = add(even, c);
        odd = add(odd, c + 1);
    }
    _mm512_store_si512(sums, _mm512_sub_epi32(_mm512_add_epi32(even, odd), shift));
}

}  // namespace

void cache_attention_vnni(const CacheAttentionArgs& a) { cache_attention_with<Avx512, byte_products>(a); }

}  // namespace zeropoint
