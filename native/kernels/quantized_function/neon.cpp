#include "kernels/simd/neon.h"
#include "kernels/quantized_function/template.h"

namespace zeropoint {

void quantized_function_neon(const QuantizedFunctionArgs& a, int64_t begin, int64_t end) {
    each_type<Exactly<Neon>::Visit>(a, begin, end);
}

}  // namespace zeropoint
