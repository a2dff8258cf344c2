#include "kernels/dequantize/template.h"
#include "kernels/simd/avx512.h"

namespace zeropoint {

void dequantize_avx512(const DequantizeArgs& a, int64_t begin, int64_t end) { dequantize_with<Avx512>(a, begin, end); }

}  // namespace zeropoint
