// group_gemm: a linear layer whose weights have 4 or 8 bits and a 16-bit scale for each group of inputs. Activations
// are rounded to bytes with a scale for each row and group. For decoders: one row reads every weight once.
//
// Activations, for each group of a row, in float32:
//   most  = max|x|
//   scale = most * (1 / 127)
//   q     = rne(x * (127 / most)); 0 if most < 2^-100
//   sum   = the sum of q
// A group with NaN or infinity has scale NaN and q = 0.
//
// Products, for output n of a row:
//   y = 0
//   for each group g, in order:
//     p = sum over k of (w[n][k] - zero) * q[k]                  exact, in int32
//     y = fma(float(p) * scale[g], d[n][g], y)
//     with minima: y = fma(scale[g] * float(sum[g]), m[n][g], y)
//   y = (y + bias[n]) + residual[n]                              those that are given
//
// w are integers from 0 to 15 or 255. zero is 8 or 128, with minima 0: a weight is (w - zero) * d, or w * d + m.
#pragma once

#include "kernels/types.h"

namespace zeropoint {

constexpr int64_t kGroupPanel = 16;       // outputs that are packed side by side
constexpr int64_t kGroupUnit = 32;        // a group is a multiple of it
constexpr int64_t kMostGroup = 256;       // so that float(p) is exact
constexpr int64_t kGroupTile = 8;         // rows that are read side by side
constexpr float kLeastGroup = 0x1p-100f;  // a group below it is zero

// Packed weights are panels of 16 outputs; what is missing in the last counts as zero. A panel has for each 32 inputs
//   4 bits: 4 lines of 64 bytes; byte 4 n + i of line j has input 8 j + i of output n in its low bits, 8 j + 4 + i in
//           its high ones
//   8 bits: 8 lines; byte 4 n + i of line j has input 4 j + i of output n
// and in other arrays, for each group, 16 scales and 16 minima, as float16.
constexpr int64_t group_unit_bytes(int bits) { return kGroupPanel * kGroupUnit * bits / 8; }

// Prepared activations are tiles of 8 rows, the last one of those that are left. In a tile of t rows, input k of row r
// is at ((k / 4) t + r) 4 + k % 4, and scale and sum of group g at g t + r.
struct GroupRows {
    const int8_t* q = nullptr;
    const float* scale = nullptr;
    const int32_t* sum = nullptr;
};

struct GroupGemmArgs {
    GroupRows x;
    int64_t rows = 0, groups = 0, group = 0;
    int bits = 4;
    const uint8_t* weights = nullptr;
    const uint16_t* scale = nullptr;
    const uint16_t* minimum = nullptr;  // or nullptr
    int64_t outputs = 0;
    const float* bias = nullptr;      // or nullptr
    const float* residual = nullptr;  // at the places of y; or nullptr
    float* y = nullptr;               // (rows, outputs)

    int64_t inputs() const { return groups * group; }
};

struct GroupGemmKernel {
    // One tile of t rows of x, `inputs` floats apart, to its place in q, scale and sum.
    void (*prepare)(const float* x, int64_t t, int64_t groups, int64_t group, int8_t* q, float* scale, int32_t* sum);
    // All rows, the outputs of panels [begin, end).
    void (*multiply)(const GroupGemmArgs& args, int64_t begin, int64_t end);
};

using GroupGemmFn = const GroupGemmKernel& (*)();

}  // namespace zeropoint
