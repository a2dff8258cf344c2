#include "operators/float_stage.h"

#include "kernels/registry.h"
#include "operators/affine.h"
#include "operators/function_curve.h"

#include <algorithm>

namespace zeropoint {

namespace {

// Panels that kernels take together, and rows at most: 17 KB of float32.
constexpr int64_t kPanels = 4, kRows = 66;
// The rows of a part: equal ones.
int64_t part_of(int64_t rows) {
    const int64_t parts = std::max<int64_t>(1, (rows + kRows - 1) / kRows);
    return (rows + parts - 1) / parts;
}

// float32 where they belong, and the function of them at once.
void multiply_to_floats(const GemmKernel& kernel, const FloatStage& stage, GemmArgs a, int64_t begin, int64_t end) {
    const FloatFunctionFn function = kernels().float_function;
    float* const y = static_cast<float*>(a.y);
    const int64_t *const rows = a.rows, *const y_rows = a.y_rows, m = a.m, part = part_of(m);
    for (int64_t p = begin; p < end; p += kPanels) {
        const int64_t last = std::min(p + kPanels, end), first = p * kPanel;
        const int64_t columns = std::min(last * kPanel, a.n) - first;
        for (int64_t row = 0; row < m; row += part) {
            a.rows = rows + row;
            a.y_rows = y_rows + row;
            a.m = a.run = std::min(part, m - row);
            kernel.multiply(a, p, last);
            for (int64_t i = 0; i < a.m; ++i) {
                float* const values = y + a.y_rows[i] + first;
                function({stage.function, values, values}, 0, columns);
            }
        }
    }
}

}  // namespace

void FloatStage::prepare(int32_t difference) {
    most = difference;
    curve = make_curve(function, inverse_scale(scale, RoundingVariant::split), most);
}

void multiply_through(const GemmKernel& kernel, const MatmulOutput& output, GemmArgs a, int64_t begin, int64_t end) {
    if (output.type == OutputType::f32) return multiply_to_floats(kernel, *output.function, a, begin, end);
    alignas(64) float values[kRows * kPanels * kPanel];
    const FloatStage& stage = *output.function;
    const QuantizedFunctionFn round = kernels().quantized_function;
    QuantizedFunctionArgs q;
    q.function = stage.function;
    q.x = values;
    q.type = output.type == OutputType::s8 ? IntType::s8 : IntType::u8;
    q.inv = inverse_scale(stage.scale, RoundingVariant::split);
    q.zero_point = output.zero_point;
    q.lo = output.lo;
    q.hi = output.hi;

    // Sums of any size are finite then, and what is beyond the curve is the same byte as its end.
    if (stage.curve != nullptr && a.epilogue.bounded && output.hi - output.zero_point == stage.most) {
        q.curve = stage.curve.get();
        a.epilogue.low = std::clamp(a.epilogue.low, q.curve->low, q.curve->high);
        a.epilogue.high = std::clamp(a.epilogue.high, q.curve->low, q.curve->high);
    }

    uint8_t* const y = static_cast<uint8_t*>(a.y);
    const int64_t *const rows = a.rows, *const y_rows = a.y_rows, m = a.m, part = part_of(m);
    int64_t at[kRows];
    a.y = values;
    a.y_rows = at;
    for (int64_t p = begin; p < end; p += kPanels) {
        const int64_t last = std::min(p + kPanels, end), first = p * kPanel;
        const int64_t columns = std::min(last * kPanel, a.n) - first;
        for (int64_t row = 0; row < m; row += part) {
            a.rows = rows + row;
            a.m = a.run = std::min(part, m - row);
            for (int64_t i = 0; i < a.m; ++i) at[i] = i * columns - first;
            kernel.multiply(a, p, last);
            q.columns = columns;
            q.y = y + first;
            q.y_rows = y_rows + row;
            round(q, 0, a.m);
        }
    }
}

}  // namespace zeropoint
