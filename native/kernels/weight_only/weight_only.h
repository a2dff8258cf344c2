// weight_only: a linear layer on float32 activations whose weights are stored in 8, 4 or 16 bits.
//
// The inputs are cut into blocks: at every multiple of group_size, and within a group at every multiple of kWeightBlock
// from its start. For output n of a row, in float32, every fma rounded once:
//
//   y = 0
//   for each block b, in order, of group g:
//     acc = 0;  for k in b, in order:  acc = fma(x[k], w[k], acc)
//     y = fma(scale[n, g], acc, y)
//     with shifts: y = fma(shift[n, g], sum[b], y),  sum[b] = x summed in order
//   y = y + bias[n];  relu: y = 0 if y < 0
//
// w[k] = q - zero_point[n, g], exact, for stored integers; w[k] is the float16 itself, with scale 1. The order does not
// depend on the number of rows: a row gives the same bytes alone and among others.
#pragma once

#include "kernels/types.h"

namespace zeropoint {

enum class WeightFormat : int {
    u8 = 0,   // signed integers are stored with 128 added
    u4 = 1,   // two inputs in a byte, the first in the low bits
    f16 = 2,  // IEEE binary16
};

constexpr int kWeightPanel = 32;       // outputs that are packed side by side
constexpr int64_t kWeightBlock = 128;  // inputs that are summed before they are scaled

// Packed weights are panels of kWeightPanel outputs. A panel is a sequence of steps, for each input (u4: for each two)
// kWeightPanel elements; the kernel says in which order.
constexpr int64_t weight_step_bytes(WeightFormat format) {
    return format == WeightFormat::f16 ? 2 * kWeightPanel : kWeightPanel;
}
constexpr int64_t weight_steps(WeightFormat format, int64_t inputs) {
    return format == WeightFormat::u4 ? (inputs + 1) / 2 : inputs;
}

struct WeightOnlyArgs {
    const float* x = nullptr;
    int64_t x_stride = 0;  // elements from row to row
    int64_t rows = 0;
    int64_t inputs = 0;
    int64_t outputs = 0;
    WeightFormat format = WeightFormat::u8;
    const uint8_t* panels = nullptr;
    int64_t group_size = 0, groups = 0;  // group_size: a multiple of 2, or all inputs
    // For each panel, each group, each of its kWeightPanel outputs.
    const float* scale = nullptr;       // f16: nullptr
    const float* zero_point = nullptr;  // integers from 0 to 255; f16: nullptr
    const float* shift = nullptr;       // or nullptr
    const float* sums = nullptr;        // of the blocks of each row; with shifts only
    int64_t sums_stride = 0;
    const float* bias = nullptr;  // for each output, padded to whole panels; or nullptr
    bool relu = false;
    void* y = nullptr;  // (rows, outputs)
    bool y_bfloat16 = false;
};

// Bytes of scratch memory, on a 64-byte boundary, for a number of rows.
inline int64_t weight_only_scratch(int64_t rows) {
    return (kWeightBlock * kWeightPanel + rows * kWeightPanel) * static_cast<int64_t>(sizeof(float));
}

struct WeightOnlyKernel {
    // Where output n of a panel stands in a step of integers; float16 stand in order.
    int (*place)(int n);
    // All rows, the outputs of panels [begin, end).
    void (*multiply)(const WeightOnlyArgs& args, int64_t begin, int64_t end, float* scratch);
};

using WeightOnlyFn = const WeightOnlyKernel& (*)();

}  // namespace zeropoint
