// The specification of quantized_function: one kernel, then the other. It is never optimized.
#include "kernels/quantized_function/quantized_function.h"

#include "kernels/quantize/quantize.h"

#include <cstddef>
#include <vector>

namespace zeropoint {

void float_function_reference(const FloatFunctionArgs& a, int64_t begin, int64_t end);
void quantize_reference(const QuantizeArgs& a, int64_t begin, int64_t end);

void quantized_function_reference(const QuantizedFunctionArgs& a, int64_t begin, int64_t end) {
    std::vector<float> values(static_cast<size_t>(a.columns));
    const float zero_point = static_cast<float>(a.zero_point);
    QuantizeArgs q;
    q.x = values.data();
    q.dst = a.type;
    q.grid = {1, 1, a.columns, 0, nullptr};
    q.inv = &a.inv;
    q.zero_point = &zero_point;
    q.variant = RoundingVariant::split;
    q.qmin = a.lo;
    q.qmax = a.hi;
    for (int64_t i = begin; i < end; ++i) {
        float_function_reference({a.function, a.x + i * a.columns, values.data()}, 0, a.columns);
        q.y = a.y + a.y_rows[i];
        quantize_reference(q, 0, a.columns);
    }
}

}  // namespace zeropoint
