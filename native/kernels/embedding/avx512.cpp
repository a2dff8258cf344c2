#include "kernels/embedding/template.h"
#include "kernels/simd/avx512.h"

namespace zeropoint {

int64_t embedding_avx512(const EmbeddingArgs& a, int64_t begin, int64_t end) {
    return embedding_with<Avx512>(a, begin, end);
}

}  // namespace zeropoint
