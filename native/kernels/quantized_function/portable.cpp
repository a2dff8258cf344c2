#include "kernels/simd/portable.h"
#include "kernels/quantized_function/template.h"

namespace zeropoint {

void quantized_function_portable(const QuantizedFunctionArgs& a, int64_t begin, int64_t end) {
    each_type<Exactly<Portable>::Visit>(a, begin, end);
}

}  // namespace zeropoint
