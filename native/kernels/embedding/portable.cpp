#include "kernels/embedding/template.h"
#include "kernels/simd/portable.h"

namespace zeropoint {

int64_t embedding_portable(const EmbeddingArgs& a, int64_t begin, int64_t end) {
    return embedding_with<Portable>(a, begin, end);
}

}  // namespace zeropoint
