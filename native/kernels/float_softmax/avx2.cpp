#include "kernels/simd/avx2.h"
#include "kernels/float_softmax/template.h"

namespace zeropoint {

void float_softmax_avx2(const FloatSoftmaxArgs& a, int64_t begin, int64_t end) {
    float_softmax_with<Avx2>(a, begin, end);
}

}  // namespace zeropoint
