#include "kernels/softmax/template.h"
#include "kernels/simd/portable.h"

namespace zeropoint {

void softmax_portable(const SoftmaxArgs& a, int64_t begin, int64_t end, float* scratch) {
    softmax_with<Portable>(a, begin, end, scratch);
}

}  // namespace zeropoint
