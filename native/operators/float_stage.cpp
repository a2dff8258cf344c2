#include "operators/float_stage.h"

#include "kernels/registry.h"
#include "operators/affine.h"

#include <algorithm>
#include <cstring>

namespace zeropoint {

void multiply_through(const GemmKernel& kernel, const MatmulOutput& output, GemmArgs a, int64_t begin, int64_t end) {
    // Panels that kernels take together, and rows that divide kGemmRows: 3 KB of float32.
    constexpr int64_t kPanels = 4, kRows = 12, kWidth = kPanels * kPanel;
    alignas(64) float values[kRows * kWidth];
    alignas(64) uint8_t bytes[kRows * kWidth];
    const FloatStage& stage = *output.function;
    const FloatFunctionFn function = kernels().float_function;
    const QuantizeFn quantize = kernels().quantize;
    const float inv = inverse_scale(stage.scale, stage.rounding), zero_point = static_cast<float>(output.zero_point);
    QuantizeArgs q;
    q.x = values;
    q.y = bytes;
    q.dst = output.type == OutputType::s8 ? IntType::s8 : IntType::u8;
    q.inv = &inv;
    q.zero_point = &zero_point;
    q.spelling = stage.rounding;
    q.qmin = output.lo;
    q.qmax = output.hi;

    uint8_t* const y = static_cast<uint8_t*>(a.y);
    const int64_t *const rows = a.rows, *const y_rows = a.y_rows, m = a.m;
    int64_t at[kRows];
    a.y = values;
    a.y_rows = at;
    for (int64_t p = begin; p < end; p += kPanels) {
        const int64_t last = std::min(p + kPanels, end), first = p * kPanel;
        const int64_t columns = std::min(last * kPanel, a.n) - first;
        for (int64_t row = 0; row < m; row += kRows) {
            a.rows = rows + row;
            a.m = a.run = std::min(kRows, m - row);
            for (int64_t i = 0; i < a.m; ++i) at[i] = i * columns - first;
            kernel.multiply(a, p, last);
            const int64_t count = a.m * columns;
            function({stage.function, values, values}, 0, count);
            q.grid = {1, 1, count, 0, nullptr};
            quantize(q, 0, count);
            for (int64_t i = 0; i < a.m; ++i)
                std::memcpy(y + y_rows[row + i] + first, bytes + i * columns, static_cast<size_t>(columns));
        }
    }
}

}  // namespace zeropoint
