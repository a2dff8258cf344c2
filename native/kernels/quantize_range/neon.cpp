#include "kernels/quantize_range/template.h"
#include "kernels/simd/neon.h"

namespace zeropoint {

void quantize_range_neon(const QuantizeRangeArgs& a, int64_t begin, int64_t end) {
    quantize_range_with<Neon>(a, begin, end);
}

}  // namespace zeropoint
