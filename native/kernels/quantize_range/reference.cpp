// The specification of quantize_range, one element at a time. It is never optimized.
#include "kernels/quantize_range/quantize_range.h"

#include <cmath>

namespace zeropoint {

void quantize_range_reference(const QuantizeRangeArgs& a, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
        const float q = std::nearbyint((a.x[i] - a.low) * a.inv);
        a.y[i] = static_cast<uint8_t>(!(q > 0.0f) ? 0.0f : q > a.qmax ? a.qmax : q);
    }
}

}  // namespace zeropoint
