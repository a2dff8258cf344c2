#include "kernels/softmax/template.h"
#include "kernels/simd/avx512.h"

namespace zeropoint {

void softmax_avx512(const SoftmaxArgs& a, int64_t begin, int64_t end, float* scratch) {
    softmax_with<Avx512>(a, begin, end, scratch);
}

}  // namespace zeropoint
