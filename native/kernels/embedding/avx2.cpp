#include "kernels/embedding/template.h"
#include "kernels/simd/avx2.h"

namespace zeropoint {

int64_t embedding_avx2(const EmbeddingArgs& a, int64_t begin, int64_t end) {
    return embedding_with<Avx2>(a, begin, end);
}

}  // namespace zeropoint
