#include "kernels/embedding/template.h"
#include "kernels/simd/avx2.h"

namespace zeropoint {

void embedding_avx2(const EmbeddingArgs& a, int64_t begin, int64_t end) { embedding_with<Avx2>(a, begin, end); }

}  // namespace zeropoint
