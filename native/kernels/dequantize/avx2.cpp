#include "kernels/dequantize/template.h"
#include "kernels/simd/avx2.h"

namespace zeropoint {

void dequantize_avx2(const DequantizeArgs& a, int64_t begin, int64_t end) { dequantize_with<Avx2>(a, begin, end); }

}  // namespace zeropoint
