#include "kernels/quantize/template.h"
#include "kernels/simd/avx2.h"

namespace zeropoint {

void quantize_avx2(const QuantizeArgs& a, int64_t begin, int64_t end) { quantize_with<Avx2>(a, begin, end); }

}  // namespace zeropoint
