// depthwise: every channel with weights of its own, over the rows and taps of kernels/gemm/gemm.h.
//
//   acc[m][c] = sum over taps t of x[rows[m] + taps[t] + c] * w[t][c]
//   y[y_rows[m] + c] = epilogue(acc[m][c], c)
//
// Activations and weights are int16 with their zero points subtracted, so sums are exact.
#pragma once

#include "kernels/gemm/gemm.h"

namespace zeropoint {

// Weights in the order [block of 16 channels][pair of taps][channel of the block][tap of the pair]; an odd last tap is
// followed by zeros, and so are the channels that do not exist. The kernel may read as many activations behind the last
// channel as the block has, and for a missing tap those of the last tap.
struct DepthwiseArgs {
    const int16_t* x = nullptr;
    const int64_t* rows = nullptr;  // m of them; in elements
    int64_t m = 0;
    const int64_t* taps = nullptr;  // in elements
    int64_t tap_count = 0, channels = 0;
    const int16_t* w = nullptr;
    void* y = nullptr;
    const int64_t* y_rows = nullptr;  // m of them; in elements
    Epilogue epilogue;
};

struct InPlaceKernel;  // kernels/depthwise/in_place.h

struct DepthwiseKernel {
    // Prepares n neighbouring activations: int16, x - x_zp.
    void (*convert)(const uint8_t* x, int64_t n, const Activation& activation, void* to);
    // The channels of blocks [begin, end), for all rows.
    void (*multiply)(const DepthwiseArgs& args, int64_t begin, int64_t end);
    // The same on activations as they are stored, for some shapes; null where that is not faster.
    const InPlaceKernel* in_place = nullptr;
};

using DepthwiseFn = const DepthwiseKernel& (*)();

}  // namespace zeropoint
