#include "kernels/simd/neon.h"
#include "kernels/cache_attention/template.h"

namespace zeropoint {

void cache_attention_neon(const CacheAttentionArgs& a) { cache_attention_with<Neon, plain_byte_products>(a); }

}  // namespace zeropoint
