#include "kernels/embedding/template.h"
#include "kernels/simd/neon.h"

namespace zeropoint {

int64_t embedding_neon(const EmbeddingArgs& a, int64_t begin, int64_t end) {
    return embedding_with<Neon>(a, begin, end);
}

}  // namespace zeropoint
