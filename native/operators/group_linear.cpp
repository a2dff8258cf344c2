#include "operators/group_linear.h"

#include "cpu/machine.h"
#include "cpu/memory.h"
#include "cpu/threads.h"
#include "kernels/half.h"
#include "kernels/registry.h"
#include "operators/scratch.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace zeropoint {
namespace {

// Rows whose activations stay in the L2 cache while the weights pass by.
int64_t rows_at_once(int64_t inputs) {
    const int64_t fit = machine().l2_share() / 2 / std::max<int64_t>(inputs, 1);
    return std::max<int64_t>(4, fit / kGroupTile) * kGroupTile;
}

void products(const GroupWeight& w, const float* x, int64_t rows, const GroupEnd& end, float* y) {
    const GroupGemmKernel& kernel = kernels().group_gemm();
    const int64_t groups = w.groups(), tiles = (rows + kGroupTile - 1) / kGroupTile;
    struct Bytes {};
    struct Scales {};
    int8_t* q = reinterpret_cast<int8_t*>(scratch_of<Bytes>(static_cast<size_t>(rows * w.inputs)));
    float* scale = reinterpret_cast<float*>(scratch_of<Scales>(static_cast<size_t>(rows * groups) * 8));
    int32_t* sum = reinterpret_cast<int32_t*>(scale + rows * groups);
    constexpr int64_t kElements = worth_elements(4);
    parallel_for(tiles, std::max<int64_t>(1, kElements / (kGroupTile * w.inputs)), [&](int64_t first, int64_t last) {
        for (int64_t tile = first; tile < last; ++tile) {
            const int64_t row = tile * kGroupTile, t = std::min(kGroupTile, rows - row);
            kernel.prepare(x + row * w.inputs, t, groups, w.group, q + row * w.inputs, scale + row * groups,
                           sum + row * groups);
        }
    });
    const int64_t block = rows_at_once(w.inputs);
    // One row is bound by reading, several by multiplying.
    const int64_t panel_macs = kGroupPanel * w.inputs * std::min(rows, block);
    const int64_t grain = std::max<int64_t>(1, 2 * kWorthFloatMacs / std::max<int64_t>(panel_macs, 1));
    parallel_for(w.panels(), grain, [&](int64_t first, int64_t last) {
        GroupGemmArgs a;
        a.groups = groups;
        a.group = w.group;
        a.bits = w.bits;
        a.weights = w.data;
        a.scale = w.scale;
        a.minimum = w.minimum;
        a.outputs = w.outputs;
        a.bias = end.bias;
        for (int64_t row = 0; row < rows; row += block) {
            a.rows = std::min(block, rows - row);
            a.x = {q + row * w.inputs, scale + row * groups, sum + row * groups};
            a.y = y + row * w.outputs;
            a.residual = end.residual != nullptr && !end.has_function ? end.residual + row * w.outputs : nullptr;
            kernel.multiply(a, first, last);
        }
    });
}

}  // namespace

void group_linear(const GroupWeight& w, const float* x, int64_t rows, const GroupEnd& end, float* wide, float* y) {
    if (rows <= 0 || w.outputs == 0) return;
    float* sums = end.gated ? wide : y;
    prepare_output(sums, static_cast<size_t>(rows * w.outputs) * sizeof(float));
    products(w, x, rows, end, sums);
    if (!end.has_function) return;
    const FloatFunctionFn function = kernels().float_function;
    const int64_t length = end.gated ? w.outputs / 2 : w.outputs;
    constexpr int64_t kElements = worth_elements(16), kPart = 1024;
    parallel_for(rows * length, kElements, [&](int64_t begin, int64_t finish) {
        for (int64_t at = begin; at < finish;) {
            const int64_t row = at / length, column = at % length,
                          count = std::min({kPart, length - column, finish - at});
            float* from = sums + row * w.outputs + column;
            function({end.function, from, from}, 0, count);
            float* to = y + at;
            if (end.gated)
                for (int64_t i = 0; i < count; ++i) to[i] = from[i] * from[length + i];
            else if (end.residual != nullptr)
                for (int64_t i = 0; i < count; ++i) to[i] += end.residual[at + i];
            at += count;
        }
    });
}

void group_embedding(const GroupWeight& w, const int64_t* indices, int64_t count, float factor, float* y) {
    for (int64_t i = 0; i < count; ++i)
        if (indices[i] < 0 || indices[i] >= w.outputs)
            throw std::invalid_argument("group_embedding: index " + std::to_string(indices[i]) +
                                        " is outside a table of " + std::to_string(w.outputs) + " rows");
    const int32_t zero = w.minimum != nullptr ? 0 : w.bits == 8 ? 128 : 8;
    const int64_t units = w.inputs / kGroupUnit, bytes = group_unit_bytes(w.bits);
    parallel_for(count, std::max<int64_t>(1, worth_elements(16) / std::max<int64_t>(w.inputs, 1)),
                 [&](int64_t begin, int64_t end) {
                     for (int64_t i = begin; i < end; ++i) {
                         const int64_t panel = indices[i] / kGroupPanel, n = indices[i] % kGroupPanel;
                         for (int64_t k = 0; k < w.inputs; ++k) {
                             const uint8_t* unit = w.data + (panel * units + k / kGroupUnit) * bytes;
                             const int64_t at = k % kGroupUnit;
                             const int32_t q = w.bits == 8
                                                   ? unit[at / 4 * 64 + n * 4 + at % 4]
                                                   : unit[at / 8 * 64 + n * 4 + at % 4] >> (at / 4 % 2 * 4) & 15;
                             const int64_t parameter = (panel * w.groups() + k / w.group) * kGroupPanel + n;
                             float value = static_cast<float>(q - zero) * from_half(w.scale[parameter]);
                             if (w.minimum != nullptr) value += from_half(w.minimum[parameter]);
                             y[i * w.inputs + k] = value * factor;
                         }
                     }
                 });
}

}  // namespace zeropoint
