#include "kernels/simd/portable.h"
#include "kernels/float_softmax/template.h"

namespace zeropoint {

void float_softmax_portable(const FloatSoftmaxArgs& a, int64_t begin, int64_t end) {
    float_softmax_with<Portable>(a, begin, end);
}

}  // namespace zeropoint
