#include "kernels/quantize/template.h"
#include "kernels/simd/portable.h"

namespace zeropoint {

void quantize_portable(const QuantizeArgs& a, int64_t begin, int64_t end) { quantize_with<Portable>(a, begin, end); }

}  // namespace zeropoint
