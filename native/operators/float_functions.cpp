#include "operators/float_functions.h"

#include "cpu/machine.h"
#include "cpu/memory.h"
#include "cpu/threads.h"
#include "kernels/activations_reference.h"
#include "kernels/registry.h"
#include "operators/scratch.h"

#include <algorithm>

namespace zeropoint {
namespace {

constexpr int64_t kElements = worth_elements(8);  // worth a thread

// Rows of `length` elements that make a share of work.
int64_t grain_of(int64_t length) { return std::max<int64_t>(1, kElements / std::max<int64_t>(length, 1)); }

void prepare_floats(float* y, int64_t count) { prepare_output(y, static_cast<size_t>(count) * sizeof(float)); }

template <class Tag>
float* float_scratch(int64_t count) {
    return reinterpret_cast<float*>(scratch_of<Tag>(static_cast<size_t>(count) * sizeof(float)));
}

}  // namespace

void float_function(FloatFunction function, const float* x, float* y, int64_t count) {
    if (x != y) prepare_floats(y, count);
    const FloatFunctionFn kernel = kernels().float_function;
    parallel_for(count, kElements, [&](int64_t begin, int64_t end) { kernel({function, x, y}, begin, end); });
}

void float_layer_norm(const float* x, float* y, int64_t rows, int64_t length, const float* weight, const float* bias,
                      double eps, bool centered) {
    if (rows * length == 0) return;
    std::vector<float> ones, zeros;
    if (weight == nullptr) ones.assign(static_cast<size_t>(length), 1.0f);
    if (bias == nullptr) zeros.assign(static_cast<size_t>(length), 0.0f);
    if (x != y) prepare_floats(y, rows * length);
    const FloatLayerNormArgs a{
        x,   y,       length,  weight != nullptr ? weight : ones.data(), bias != nullptr ? bias : zeros.data(),
        eps, nullptr, centered};
    const FloatLayerNormFn kernel = kernels().float_layer_norm;
    parallel_for(rows, grain_of(length), [&](int64_t begin, int64_t end) { kernel(a, begin, end); });
}

void float_softmax(const float* x, float* y, int64_t outer, int64_t length, int64_t inner, bool safe) {
    if (outer * length * inner == 0) return;
    if (x != y) prepare_floats(y, outer * length * inner);
    const FloatSoftmaxFn kernel = kernels().float_softmax;
    if (inner == 1)
        return parallel_for(outer, grain_of(length),
                            [&](int64_t begin, int64_t end) { kernel({x, y, length, safe}, begin, end); });
    // Some columns at a time become rows, and the results columns again.
    constexpr int64_t kColumns = 16;
    const int64_t blocks = (inner + kColumns - 1) / kColumns;
    struct Rows {};
    parallel_for(outer * blocks, grain_of(length * kColumns), [&](int64_t begin, int64_t end) {
        float* rows = float_scratch<Rows>(kColumns * length);
        for (int64_t block = begin; block < end; ++block) {
            const int64_t first = block % blocks * kColumns, columns = std::min(kColumns, inner - first);
            const int64_t at = block / blocks * length * inner + first;
            for (int64_t i = 0; i < length; ++i)
                for (int64_t c = 0; c < columns; ++c) rows[c * length + i] = x[at + i * inner + c];
            kernel({rows, rows, length, safe}, 0, columns);
            for (int64_t i = 0; i < length; ++i)
                for (int64_t c = 0; c < columns; ++c) y[at + i * inner + c] = rows[c * length + i];
        }
    });
}

void float_log_softmax(const float* x, float* y, int64_t outer, int64_t length, int64_t inner) {
    if (outer * length * inner == 0) return;
    parallel_for(outer * inner, grain_of(length), [&](int64_t begin, int64_t end) {
        for (int64_t line = begin; line < end; ++line) {
            const int64_t first = line / inner * length * inner + line % inner, last = first + length * inner;
            float most = x[first];
            for (int64_t i = first; i < last; i += inner) most = x[i] > most || x[i] != x[i] ? x[i] : most;
            double sum = 0;
            for (int64_t i = first; i < last; i += inner) sum += static_cast<double>(OneActivation::exp(x[i] - most));
            const float all = static_cast<float>(std::log(sum));
            for (int64_t i = first; i < last; i += inner) y[i] = (x[i] - most) - all;
        }
    });
}

namespace {

// Columns [first, first + columns) of b as panels; what is missing from the last is 0.
void pack_columns(const float* b, const FloatMatrices& m, int64_t first, int64_t columns, float* panels) {
    for (int64_t begin = 0; begin < columns; begin += kFloatPanel) {
        const int64_t count = std::min(kFloatPanel, columns - begin);
        const float* from = b + (first + begin) * m.b_column;
        if (count < kFloatPanel) std::fill_n(panels, m.depth * kFloatPanel, 0.0f);
        if (m.b_column == 1) {
            for (int64_t k = 0; k < m.depth; ++k) std::copy_n(from + k * m.b_row, count, panels + k * kFloatPanel);
        } else {
            for (int64_t n = 0; n < count; ++n)
                for (int64_t k = 0; k < m.depth; ++k) panels[k * kFloatPanel + n] = from[k * m.b_row + n * m.b_column];
        }
        panels += m.depth * kFloatPanel;
    }
}

}  // namespace

void float_matmul(const float* a, const float* b, float* y, const FloatMatrices& m) {
    const int64_t batches = m.batches();
    if (batches * m.rows * m.columns == 0) return;
    prepare_floats(y, batches * m.rows * m.columns);
    // A task packs and multiplies some columns of one matrix.
    constexpr int64_t kColumns = 4 * kFloatPanel, kStrip = 96;
    const int64_t tasks = (m.columns + kColumns - 1) / kColumns;
    const int64_t macs = m.rows * std::min(kColumns, m.columns) * std::max<int64_t>(m.depth, 1);
    const FloatGemmFn kernel = kernels().float_gemm;
    struct Panels {};
    struct Last {};
    parallel_for(batches * tasks, std::max<int64_t>(1, kWorthFloatMacs / macs), [&](int64_t begin, int64_t end) {
        float* panels = float_scratch<Panels>(kColumns * m.depth);
        float* last = float_scratch<Last>(kStrip * kFloatPanel);
        for (int64_t task = begin; task < end; ++task) {
            const int64_t batch = task / tasks, first = task % tasks * kColumns;
            int64_t rest = batch, a_at = 0, b_at = 0;
            for (size_t i = m.batch.size(); i-- > 0; rest /= m.batch[i]) {
                a_at += rest % m.batch[i] * m.a_batch[i];
                b_at += rest % m.batch[i] * m.b_batch[i];
            }
            const int64_t columns = std::min(kColumns, m.columns - first), whole = columns / kFloatPanel;
            pack_columns(b + b_at, m, first, columns, panels);
            float* to = y + batch * m.rows * m.columns + first;
            FloatGemmArgs args;
            args.x = a + a_at;
            args.rows = m.rows;
            args.depth = m.depth;
            args.x_stride = m.a_row;
            args.panels = panels;
            args.panel_stride = m.depth * kFloatPanel;
            args.y = to;
            args.y_stride = m.columns;
            kernel(args, 0, whole);
            const int64_t left = columns - whole * kFloatPanel;
            if (left == 0) continue;
            // Kernels write whole panels.
            args.panels = panels + whole * m.depth * kFloatPanel;
            args.y = last;
            args.y_stride = kFloatPanel;
            for (int64_t row = 0; row < m.rows; row += kStrip) {
                args.x = a + a_at + row * m.a_row;
                args.rows = std::min(kStrip, m.rows - row);
                kernel(args, 0, 1);
                for (int64_t i = 0; i < args.rows; ++i)
                    std::copy_n(last + i * kFloatPanel, left, to + (row + i) * m.columns + whole * kFloatPanel);
            }
        }
    });
}

}  // namespace zeropoint
