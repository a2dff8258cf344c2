#include "kernels/simd/avx512.h"
#include "kernels/float_function/template.h"
#include "kernels/simd/pair.h"

namespace zeropoint {

void float_function_avx512(const FloatFunctionArgs& a, int64_t begin, int64_t end) {
    float_function_with<Pair<Avx512>>(a, begin, end);
}

}  // namespace zeropoint
