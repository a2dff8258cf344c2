#include "kernels/average_pool/template.h"
#include "kernels/simd/neon.h"

namespace zeropoint {

void average_pool_neon(const AveragePoolArgs& a, int64_t begin, int64_t end, void* scratch) {
    average_pool_with<Neon>(a, begin, end, scratch);
}

}  // namespace zeropoint
