#include "kernels/max_pool/template.h"

namespace zeropoint {

void max_pool_neon(const MaxPoolArgs& a, int64_t begin, int64_t end, void* scratch) {
    max_pool_with(a, begin, end, scratch);
}

}  // namespace zeropoint
