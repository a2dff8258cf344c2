#include "kernels/quantize_range/template.h"
#include "kernels/simd/avx512.h"

namespace zeropoint {

void quantize_range_avx512(const QuantizeRangeArgs& a, int64_t begin, int64_t end) {
    quantize_range_with<Avx512>(a, begin, end);
}

}  // namespace zeropoint
