#include "kernels/average_pool/template.h"
#include "kernels/simd/portable.h"

namespace zeropoint {

void average_pool_portable(const AveragePoolArgs& a, int64_t begin, int64_t end, void* scratch) {
    average_pool_with<Portable>(a, begin, end, scratch);
}

}  // namespace zeropoint
