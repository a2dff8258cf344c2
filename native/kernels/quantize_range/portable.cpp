#include "kernels/quantize_range/template.h"
#include "kernels/simd/portable.h"

namespace zeropoint {

void quantize_range_portable(const QuantizeRangeArgs& a, int64_t begin, int64_t end) {
    quantize_range_with<Portable>(a, begin, end);
}

}  // namespace zeropoint
