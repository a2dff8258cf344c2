#include "kernels/simd/portable.h"
#include "kernels/cache_attention/template.h"

namespace zeropoint {

void cache_attention_portable(const CacheAttentionArgs& a) { cache_attention_with<Portable, plain_byte_products>(a); }

}  // namespace zeropoint
