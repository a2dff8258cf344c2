// fake_quantize: float32 -> float32 through the integers, and which elements were inside the range.
//   v = rne(x * inv) + zero_point          (or rne(fma(x, inv, zero_point)) if joined: float zero points)
//   y = (clamp(v, qmin, qmax) - zero_point) * scale
//   mask = qmin <= v <= qmax
#pragma once

#include "kernels/types.h"

namespace zeropoint {

// What v becomes where it is not a number, or too large to be an integer at all. In every case the mask is 0 there.
enum class Beyond : int {
    keep_nan = 0,  // NaN stays NaN, infinities saturate: fake_quant_per_channel of the decomposed ops
    nan_low = 1,   // NaN counts as qmin, infinities saturate: fake_quantize_per_tensor_affine
    int64_low =
        2,  // NaN and |v| >= 2^63 count as qmin, as a conversion to int64 does: fake_quantize_per_channel_affine
};

// How the way back is computed. Equal while q - zero_point is exact in float32, that is |q|, |zero_point| <= 2^23.
enum class WayBack : int {
    single = 0,         // all in float32
    exact = 1,          // clamp and difference exact, product in float32: per tensor
    exact_product = 2,  // clamp, difference and product in float64, rounded once: per channel
};

struct FakeQuantizeArgs {
    const float* x = nullptr;
    float* y = nullptr;
    uint8_t* mask = nullptr;  // may be null
    Grid grid;
    const float* inv = nullptr;
    const float* zero_point = nullptr;         // for the way there
    const double* exact_zero_point = nullptr;  // for the way back, unless it is single
    const float* scale = nullptr;
    bool joined = false;
    Beyond beyond = Beyond::keep_nan;
    WayBack way_back = WayBack::single;
    double qmin = 0, qmax = 0;
    float mask_lo = 0, mask_hi = 0;  // the floats v may take inside the range
};

using FakeQuantizeFn = void (*)(const FakeQuantizeArgs&, int64_t begin, int64_t end);

}  // namespace zeropoint
