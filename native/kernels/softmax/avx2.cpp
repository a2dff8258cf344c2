#include "kernels/softmax/template.h"
#include "kernels/simd/avx2.h"

namespace zeropoint {

void softmax_avx2(const SoftmaxArgs& a, int64_t begin, int64_t end, float* scratch) {
    softmax_with<Avx2>(a, begin, end, scratch);
}

}  // namespace zeropoint
