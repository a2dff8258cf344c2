// The specification of cell, one element at a time. It is never optimized.
#include "kernels/activations_reference.h"
#include "kernels/cell/cell.h"

#include <cmath>
#include <limits>

namespace zeropoint {

namespace {

float gate_of(const CellGates& gates, int64_t row, int64_t n) {
    const float v = gates.v[row * gates.stride + n];
    if (!gates.by_rows()) return v;
    const float shift = gates.zero_point[row] * gates.sums[n];
    const float scaled = (v - shift) * gates.scale[row];
    return scaled + gates.bias[n];
}

}  // namespace

void cell_reference(const CellArgs& a, int64_t begin, int64_t end) {
    const auto sigmoid = OneActivation::sigmoid, tanh = OneActivation::tanh;
    const int64_t gates = cell_gates(a.cell);
    for (int64_t row = 0; row < a.rows; ++row) {
        float low = 0, high = 0;
        bool nan = false;
        for (int64_t unit = begin * kCellBlock; unit < end * kCellBlock; ++unit) {
            const int64_t first = unit / kCellBlock * gates * kCellBlock + unit % kCellBlock;
            const auto x = [&](int64_t gate) { return gate_of(a.x, row, first + gate * kCellBlock); };
            const auto h = [&](int64_t gate) { return gate_of(a.h, row, first + gate * kCellBlock); };
            const int64_t at = row * a.stride + unit;
            float now = 0;
            if (a.cell == Cell::lstm) {
                const float i = sigmoid(h(0) + x(0)), f = sigmoid(h(1) + x(1));
                const float g = tanh(h(2) + x(2)), o = sigmoid(h(3) + x(3));
                const float kept = f * a.c[at], added = i * g;
                a.c[at] = kept + added;
                now = o * tanh(a.c[at]);
            } else if (a.cell == Cell::gru) {
                const float r = sigmoid(h(0) + x(0)), z = sigmoid(h(1) + x(1));
                const float reset = r * h(2), n = tanh(x(2) + reset), kept = (a.before[at] - n) * z;
                now = kept + n;
            } else {
                const float v = h(0) + x(0);
                now = a.cell == Cell::tanh ? tanh(v) : v < 0 ? 0.0f : v;
            }
            a.after[at] = now;
            nan = nan || std::isnan(now);
            low = now < low ? now : low;
            high = now > high ? now : high;
        }
        a.low[row] = nan ? std::numeric_limits<float>::quiet_NaN() : low;
        a.high[row] = nan ? std::numeric_limits<float>::quiet_NaN() : high;
    }
}

}  // namespace zeropoint
