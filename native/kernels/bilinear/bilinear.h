// bilinear: each output is a weighted mean of four inputs.
//
//   t(h)  = w0 * x[h, i0] + w1 * x[h, i1]                    for the two taps i0, i1 of the output's column
//   v     = h0 * t(j0) + h1 * t(j1)                          for the two taps j0, j1 of its row
//   y     = clamp(rne((v - zero_point) + zero_point))        float32 throughout; the detour over zero_point loses bits
//                                                            of v near 0, and PyTorch 2.13 takes it
// fused: the second product of each sum is not rounded: t = fma(w1, x1, w0 * x0), v = fma(h1, t1, h0 * t0).
#pragma once

#include "kernels/types.h"

namespace zeropoint {

struct Tap {
    int64_t first = 0, second = 0;
    float first_weight = 0, second_weight = 0;
};

struct BilinearArgs {
    const void* x = nullptr;
    void* y = nullptr;
    IntType type = IntType::u8;  // u8 or s8
    int64_t channels = 1;        // neighbours in memory at each place: C if channels are innermost, else 1
    int64_t in_height = 0, in_width = 0, out_height = 0, out_width = 0;
    const Tap* rows = nullptr;     // out_height of them
    const Tap* columns = nullptr;  // out_width of them
    bool fused = false;
    int32_t zero_point = 0;
    float qmin = 0, qmax = 255;

    // float elements of scratch memory that a call needs: two rows of t and one of x, with room to read past their
    // ends.
    static constexpr int64_t kRoom = 64;
    int64_t scratch() const { return 2 * (out_width * channels + kRoom) + in_width + kRoom; }
};

// The output rows [begin, end); row = image * out_height + height.
using BilinearFn = void (*)(const BilinearArgs&, int64_t begin, int64_t end, void* scratch);

}  // namespace zeropoint
