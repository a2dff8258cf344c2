#include "kernels/softmax/template.h"
#include "kernels/simd/neon.h"

namespace zeropoint {

void softmax_neon(const SoftmaxArgs& a, int64_t begin, int64_t end, float* scratch) {
    softmax_with<Neon>(a, begin, end, scratch);
}

}  // namespace zeropoint
