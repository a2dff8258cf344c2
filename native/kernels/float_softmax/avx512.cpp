#include "kernels/simd/avx512.h"
#include "kernels/float_softmax/template.h"

namespace zeropoint {

void float_softmax_avx512(const FloatSoftmaxArgs& a, int64_t begin, int64_t end) {
    float_softmax_with<Avx512>(a, begin, end);
}

}  // namespace zeropoint
