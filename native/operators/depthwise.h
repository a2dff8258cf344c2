// Convolutions in which every channel has a kernel of its own. See kernels/depthwise/depthwise.h for the formula and
// operators/convolution.h, which hands over to this, for the words.
#pragma once

#include "kernels/depthwise/depthwise.h"
#include "operators/conv_shape.h"
#include "operators/matmul.h"

#include <array>
#include <vector>

namespace zeropoint {

// Weights packed once; run() may be called from many threads at once, and with any size of input.
class DepthwisePlan {
public:
    // Weights are (channels, depth, height, width). Keeps no reference to them.
    DepthwisePlan(const WeightTensor& w, const ConvShape& shape, const DepthwiseKernel& kernel);

    // Layouts as of ConvPlan::run.
    void run(const MatmulInput& x, int64_t images, const Size3& in, const MatmulOutput& y, bool channels_first) const;

private:
    struct Phase {
        std::array<AxisPhase, 3> axes;
        AlignedBytes weights;  // see DepthwiseArgs
    };
    struct Task;

    AlignedBytes pack(const WeightTensor& w, const std::vector<int64_t>& taps) const;

    ConvShape shape_;
    const DepthwiseKernel& kernel_;
    PackedWeights sizes_;  // of the channels; their zero points are subtracted already
    std::vector<Phase> phases_;
};

}  // namespace zeropoint
