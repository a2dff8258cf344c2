// Convolutions in which every channel has a kernel of its own. See kernels/depthwise/depthwise.h for the formula and
// operators/convolution.h, which hands over to this, for the words.
#pragma once

#include "kernels/depthwise/depthwise.h"
#include "kernels/depthwise/in_place.h"
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

    // Whether activations are read as they are stored, where they are channels last.
    bool is_in_place() const { return in_place_.weights.size() > 0; }

private:
    struct Phase {
        std::array<AxisPhase, 3> axes;
        AlignedBytes weights;  // see DepthwiseArgs
    };
    struct Task;
    // What the kernel that reads activations as they are stored needs; without bytes, if it does not take the shape.
    struct InPlace {
        InPlaceShape shape;
        AlignedBytes weights;
        PackedWeights sizes;  // of the channels, with the sums of their weights
    };

    AlignedBytes pack(const WeightTensor& w, const std::vector<int64_t>& taps) const;
    InPlace pack_in_place(const WeightTensor& w) const;
    void run_in_place(const MatmulInput& x, int64_t images, const Size3& in, const MatmulOutput& y) const;

    ConvShape shape_;
    const DepthwiseKernel& kernel_;
    PackedWeights sizes_;  // of the channels; their zero points are subtracted already
    std::vector<Phase> phases_;
    InPlace in_place_;
    FoldCache folds_;  // of in_place_
};

}  // namespace zeropoint
