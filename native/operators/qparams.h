// From a range to (scale, zero_point): the formula of dynamic quantization and of fused observation.
#pragma once

#include <cstdint>

namespace zeropoint {

struct QParams {
    double scale = 1;
    int64_t zero_point = 0;
};

// Widens [low, high] to contain 0 and maps it onto [qmin, qmax]. A scale that float32 cannot invert becomes 0.1, one
// below 6.1e-5 is stretched to that; the zero point is taken from the side where it is rounded less. `symmetric` makes
// a range that lies on both sides of 0 symmetric first, with the zero point in the middle.
//
// `rounded` finds the zero point with the scale as float32 holds it: for [-1.75, 1.75] onto 0..63 that is 31.4999998,
// not 31.5, hence 31, not 32. PyTorch does so where it fuses observation with fake quantization, and does not in
// dynamic quantization.
QParams qparams_of_range(float low, float high, int64_t qmin, int64_t qmax, bool symmetric, bool rounded);

}  // namespace zeropoint
