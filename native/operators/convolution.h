// Quantized convolutions in one, two and three dimensions, transposed ones too. See kernels/gemm/gemm.h for the
// formula.
//
// Every convolution becomes phases, taps and strips:
//   phase  a regular part of the output whose places all see the same kernel positions. A convolution has one; a
//          transposed convolution with stride s has s of them along each axis: output o = r + s j reads input
//          j + (r + padding - k dilation) / s for those k for which that is an integer, so each is a convolution.
//   tap    neighbouring kernel positions of one kernel row, if they are neighbours in memory; else a single position.
//          Where kernel and input are one column of few channels, they are turned into one row; where a depthwise
//          kernel and its input are one row, into one column, whose lines threads share.
//   strip  some lines of the output of one image. The input they read is prepared for the kernel, with the zero point
//          where the padding is, in memory of the thread that works on the strip.
#pragma once

#include "operators/conv_shape.h"
#include "operators/depthwise.h"
#include "operators/linear.h"

#include <array>
#include <memory>

namespace zeropoint {

// The kernels a plan uses.
struct ConvKernels {
    const GemmKernel& gemm;
    const DepthwiseKernel& depthwise;
};

// Weights packed once; run() may be called from many threads at once, and with any size of input.
class ConvPlan {
public:
    // Weights are (out_channels, depth, height, width, in_channels / groups), for transposed convolutions too.
    // Keeps no reference to them. The kernels are the best for the active level.
    ConvPlan(const WeightTensor& w, const ConvShape& shape);
    ConvPlan(const WeightTensor& w, const ConvShape& shape, const ConvKernels& kernels);
    ~ConvPlan();

    // x is (images, depth, height, width, in_channels), or with channels_first (images, in_channels, depth, height,
    // width); y is (images, depth, height, width, out_channels) of shape.output_size(in). Both are contiguous.
    void run(const MatmulInput& x, int64_t images, const Size3& in, const MatmulOutput& y,
             bool channels_first = false) const;

    const ConvShape& shape() const { return given_; }

    // Whether plans with this kernel may need fewer multiplications than the definition has: see operators/winograd.h.
    static bool saves_multiplications(const ConvShape& shape, const GemmKernel& kernel);
    // What it costs to read weights of `bytes` for a call of one image of so many places; see LinearPlan.
    static int64_t bytes_read_again(const ConvShape& shape, int64_t bytes, int64_t places);

private:
    struct Phase {
        std::array<AxisPhase, 3> axes;
        bool merged = false;  // taps along the width are one
        size_t pack = 0;      // its weights in packs_
    };
    using Pack = std::vector<PackedWeights>;  // of each group
    struct Geometry;
    struct Cut;
    struct CutKey {
        int64_t images;
        Size3 in;
        int threads;
        bool operator==(const CutKey& other) const {
            return images == other.images && in == other.in && threads == other.threads;
        }
    };
    struct Task;
    static constexpr size_t kNone = static_cast<size_t>(-1);

    void add_phase(const WeightTensor& w, const std::array<AxisPhase, 3>& axes);
    Pack pack(const WeightTensor& w, const std::vector<std::vector<int64_t>>& taps) const;
    bool reads_in_place(const Activation& activation, bool channels_first) const;
    Geometry geometry(const Phase& phase, int64_t images, const Size3& out, std::vector<int64_t>& taps) const;
    Cut cut(int64_t images, const Size3& out) const;

    ConvShape given_;
    ConvShape shape_;  // with small groups joined
    const GemmKernel& gemm_;
    bool winograd_ = false;  // whether Winograd's algorithm is exact for these weights
    std::vector<Phase> phases_;
    std::vector<Pack> packs_;  // one for each phase with taps, and one for all those without
    size_t empty_pack_ = kNone;
    std::unique_ptr<DepthwisePlan> depthwise_;  // all of it, if every channel has a kernel of its own
    std::unique_ptr<LinearPlan> pointwise_;
    std::unique_ptr<ConvPlan> turned_;  // for inputs of one column or, if depthwise, of one row
    FoldCache folds_;
    SmallCache<CutKey, Cut> cuts_;
};

}  // namespace zeropoint
