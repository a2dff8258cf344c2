#include "kernels/simd/neon.h"
#include "kernels/float_function/template.h"
#include "kernels/simd/pair.h"

namespace zeropoint {

void float_function_neon(const FloatFunctionArgs& a, int64_t begin, int64_t end) {
    float_function_with<Pair<Neon>>(a, begin, end);
}

}  // namespace zeropoint
