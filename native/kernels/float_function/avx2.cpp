#include "kernels/simd/avx2.h"
#include "kernels/float_function/template.h"
#include "kernels/simd/pair.h"

namespace zeropoint {

void float_function_avx2(const FloatFunctionArgs& a, int64_t begin, int64_t end) {
    float_function_with<Pair<Avx2>>(a, begin, end);
}

}  // namespace zeropoint
