#include "kernels/dequantize/template.h"
#include "kernels/simd/neon.h"

namespace zeropoint {

void dequantize_neon(const DequantizeArgs& a, int64_t begin, int64_t end) { dequantize_with<Neon>(a, begin, end); }

}  // namespace zeropoint
