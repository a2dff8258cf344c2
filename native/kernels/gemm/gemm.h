// gemm: rows of activations times weights, in exact integers, then the epilogue. Linear layers and every convolution
// are this one operation, seen as rows and taps:
//
//   acc[m][n] = sum over taps t and channels c of  (x[rows[m] + taps[t] + c] - x_zp) * (w[n][t][c] - w_zp[n])
//   y[y_rows[m] + n] = epilogue(acc[m][n], n)
//
// A row is one token or one output pixel; a tap is a run of `channels` neighbours in memory that a row reads at a fixed
// distance from its start. A linear layer has one tap. A convolution over padded NHWC input has one tap for each row of
// its kernel (or for each kernel position, where these are not neighbours in memory). Sums are taken modulo 2^32 and no
// partial result saturates, so the order of summation is free and every kernel gives the same bytes.
#pragma once

#include "kernels/types.h"

#include <limits>

namespace zeropoint {

// Output channels in a panel of packed weights; bias, multiplier and w_zero_point are padded to a multiple of it.
constexpr int64_t kPanel = 16;
// The most rows a kernel takes in one call: a multiple of the tile heights 6, 12 and 16.
constexpr int64_t kGemmRows = 240;
// Elements behind the last row of a prepared operand that a kernel may read (and multiplies with zero).
constexpr int64_t kOperandSlack = 64;

// What a kernel reads instead of the activations as they came:
//   centered: int16, x - x_zp
//   shifted:  uint8, x if x is u8, x + 128 if x is s8. The zero point remains, for the folded bias:
//       sum((x - x_zp) (w - w_zp)) = sum(x w) - x_zp sum(w) - w_zp sum(x) + K x_zp w_zp      (K: channels of all taps)
//     The kernel subtracts w_zp sum(x); everything else does not depend on x and is in the bias.
enum class Operand { centered, shifted };

// Weights are stored as s8 (u8 weights minus 128, and so their zero points) in the order
//   [group of panels][tap][channel / together][panel][output channel of the panel][channel % together]
// with 16 output channels in a panel. A tile that takes all panels of a group reads one stream. The last group has the
// panels that are left, side by side. Padding counts as zero, whatever it is multiplied with: for a centered operand it
// is w_zp, for a shifted one 0.
struct PanelLayout {
    int64_t together;   // channels of one output channel that stand side by side
    int64_t multiple;   // channels of a tap are padded to a multiple of this
    int64_t group = 1;  // panels

    int64_t padded(int64_t channels) const { return (channels + multiple - 1) / multiple * multiple; }
    // Where a panel begins, and how far it is from one `together` channels to the next; in bytes. `size`: of a panel.
    struct Place {
        int64_t begin, step;
    };
    Place place(int64_t panel, int64_t panels, int64_t size) const {
        const int64_t word = kPanel * together, first = panel / group * group;
        const int64_t width = panels - first < group ? panels - first : group;
        return {first * size + (panel - first) * word, width * word};
    }
};

enum class OutputType : int { u8 = 0, s8 = 1, f32 = 2 };

// What becomes of a result that has its scale: what all outputs share, from the layer to the kernel.
struct OutputForm {
    OutputType type = OutputType::u8;
    int32_t zero_point = 0, lo = 0, hi = 255;  // of bytes; |zero_point|, |lo|, |hi| < 2^22
    float low = -std::numeric_limits<float>::infinity(), high = std::numeric_limits<float>::infinity();  // of float32
    float slope = 1;          // of negative values: leaky ReLU
    const void* z = nullptr;  // what is added before rounding, at the places of y: 8 bit
    IntType z_type = IntType::u8;
    int32_t z_zero_point = 0;

    bool leaky() const { return slope != 1.0f; }
};

// From acc to y, for output channel n, in float32 with every operation rounded:
//   v = float(acc + bias[n]) * multiplier[n]                         int32 to float rounds to nearest even
//   v += float_bias[n]
//   u8, s8: v = ((float(acc + bias[n]) * first) * multiplier[n] + float_bias[n]) * after[n], if `after` is given
//   u8, s8: v += float(z - z_zero_point) * z_multiplier   if z is given: the residual
//   v = v < 0 ? v * slope : v             if leaky()
//   f32:    y = clamp(v, low, high)       NaN stays NaN
//   u8, s8: v = rne(v + zero_point) - zero_point          if zero_point_first
//   u8, s8: y = rne(clamp(v, lo - zero_point, hi - zero_point)) + zero_point, which is clamp(rne(v) + zero_point, lo,
//   hi)
//           NaN gives hi
struct Epilogue : OutputForm {
    const int32_t* bias = nullptr;
    const float* multiplier = nullptr;
    const float* float_bias = nullptr;
    // For layers that round as another engine does (operators/rounding.h); bytes only. Padded as the others.
    const float* after = nullptr;
    float first = 1;  // these two only together with `after`
    bool zero_point_first = false;
    float z_multiplier = 0;
    // For every sum, 2^31 in size at most, |float(acc + bias) * multiplier + float_bias| < 2^30: it is rounded to an
    // int32 as it is, and bounds may be taken in 8 or 16 bits that saturate.
    bool bounded = false;
};

struct GemmArgs {
    const void* x = nullptr;        // prepared, see Operand
    const int64_t* rows = nullptr;  // m of them; in elements
    int64_t m = 0;                  // at most kGemmRows
    // Rows come in runs of so many (the last may be shorter), which are `row_step` elements apart: the lines of an
    // image, or all rows of a matrix. 1: nothing is known.
    int64_t run = 1, row_step = 0;
    const int64_t* taps = nullptr;  // in elements
    int64_t tap_count = 0, channels = 0;
    const int8_t* panels = nullptr;
    int64_t n = 0;
    const int32_t* w_zero_point = nullptr;  // of the stored weights; nullptr if all are zero
    const int32_t* w_sums = nullptr;        // of the stored weights of each output channel
    int32_t x_zero_point = 0;               // of the shifted activations, whichever operand the kernel takes
    void* y = nullptr;
    const int64_t* y_rows = nullptr;  // m of them; in elements
    Epilogue epilogue;
};

// How activations come.
struct Activation {
    bool is_signed = false;
    int32_t zero_point = 0;  // |zero_point| < 2^15 - 255

    int32_t shifted_zero_point() const { return is_signed ? zero_point + 128 : zero_point; }
};

struct WinogradKernel;  // kernels/gemm/winograd.h

// The kernels of an instruction set: functions that agree on a layout and on an operand.
struct GemmKernel {
    PanelLayout layout;
    Operand operand;
    // Prepares n neighbouring activations.
    void (*convert)(const uint8_t* x, int64_t n, const Activation& activation, void* to);
    // The output channels of panels [begin, end), for all rows.
    void (*multiply)(const GemmArgs& args, int64_t begin, int64_t end);
    // 3x3 convolutions on the same operand and weights, with fewer multiplications; null where that is not faster.
    const WinogradKernel* winograd = nullptr;

    int64_t operand_size() const { return operand == Operand::centered ? 2 : 1; }
};

using GemmFn = const GemmKernel& (*)();

}  // namespace zeropoint
