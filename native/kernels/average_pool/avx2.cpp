#include "kernels/average_pool/template.h"
#include "kernels/simd/avx2.h"

namespace zeropoint {

void average_pool_avx2(const AveragePoolArgs& a, int64_t begin, int64_t end, void* scratch) {
    average_pool_with<Avx2>(a, begin, end, scratch);
}

}  // namespace zeropoint
