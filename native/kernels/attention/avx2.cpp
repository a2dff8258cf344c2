#include "kernels/simd/avx2.h"
#include "kernels/attention/centered.h"

namespace zeropoint {
namespace {

struct Avx2Pairs {
    using I = Avx2::I;
    static I add_pairs(I sum, int32_t pair, const int16_t* w) {
        const __m256i weights = _mm256_load_si256(reinterpret_cast<const __m256i*>(w));
        return {_mm256_add_epi32(sum.v, _mm256_madd_epi16(_mm256_set1_epi32(pair), weights))};
    }
};

}  // namespace

void attention_avx2(const AttentionArgs& a, int64_t begin, int64_t end, uint8_t* memory) {
    attention_with<Avx2, CenteredProducts<Avx2, Avx2Pairs>>(a, begin, end, memory);
}

}  // namespace zeropoint
