#include "kernels/simd/neon.h"
#include "kernels/float_softmax/template.h"

namespace zeropoint {

void float_softmax_neon(const FloatSoftmaxArgs& a, int64_t begin, int64_t end) {
    float_softmax_with<Neon>(a, begin, end);
}

}  // namespace zeropoint
