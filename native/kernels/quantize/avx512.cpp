#include "kernels/quantize/template.h"
#include "kernels/simd/avx512.h"

namespace zeropoint {

void quantize_avx512(const QuantizeArgs& a, int64_t begin, int64_t end) { quantize_with<Avx512>(a, begin, end); }

}  // namespace zeropoint
