#include "kernels/simd/portable.h"
#include "kernels/float_function/template.h"

namespace zeropoint {

void float_function_portable(const FloatFunctionArgs& a, int64_t begin, int64_t end) {
    float_function_with<Portable>(a, begin, end);
}

}  // namespace zeropoint
