// Images of other sizes, of float32.
#pragma once

#include "operators/float_pooling.h"

namespace zeropoint {

struct FloatBilinearRule {
    bool align_corners = false;
    double scale_height = 0, scale_width = 0;  // output / input; 0: of the sizes
};

// The weighted mean of the four inputs around each output, first along the width. An output's place in the input is
// (o + 0.5) * in / out - 0.5, at least 0, or o * (in - 1) / (out - 1) with align_corners, in float64; weights are
// float32. Depths must be 1.
void float_bilinear(const FloatPoolTensor& tensor, const FloatBilinearRule& rule);

}  // namespace zeropoint
