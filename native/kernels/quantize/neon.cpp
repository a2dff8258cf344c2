#include "kernels/quantize/template.h"
#include "kernels/simd/neon.h"

namespace zeropoint {

void quantize_neon(const QuantizeArgs& a, int64_t begin, int64_t end) { quantize_with<Neon>(a, begin, end); }

}  // namespace zeropoint
