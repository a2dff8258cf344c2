#include "kernels/quantize_range/template.h"
#include "kernels/simd/avx2.h"

namespace zeropoint {

void quantize_range_avx2(const QuantizeRangeArgs& a, int64_t begin, int64_t end) {
    quantize_range_with<Avx2>(a, begin, end);
}

}  // namespace zeropoint
