#include "kernels/simd/avx2.h"
#include "kernels/quantized_function/template.h"

namespace zeropoint {

void quantized_function_avx2(const QuantizedFunctionArgs& a, int64_t begin, int64_t end) {
    each_type<Exactly<Avx2>::Visit>(a, begin, end);
}

}  // namespace zeropoint
