// Linear layers and convolutions of float32, for what a model leaves unquantized. See kernels/float_gemm/float_gemm.h
// for the formula; k goes over the kernel's positions, and for each over the channels of the group.
//
// A convolution is a product of matrices for each of its phases (see operators/convolution.h). Some rows at a time, and
// of these some columns, are gathered from the input, with zeros where the padding is.
#pragma once

#include "operators/convolution.h"

#include <array>
#include <vector>

namespace zeropoint {

// Weights packed once; run() may be called from many threads at once, and with any size of input.
class FloatConvLayer {
public:
    // Weights are (out_channels, depth, height, width, in_channels / groups), for transposed convolutions too; bias has
    // out_channels, or is null. Keeps no reference to them. Throws std::invalid_argument if the shape is none.
    FloatConvLayer(const float* weight, const ConvShape& shape, const float* bias);
    FloatConvLayer(const FloatConvLayer&) = delete;

    // x is (images, depth, height, width, in_channels), y (images, depth, height, width, out_channels) of
    // shape.output_size(in), both contiguous.
    void run(const float* x, int64_t images, const Size3& in, float* y) const;

    const ConvShape& shape() const { return shape_; }
    // The most memory that a thread takes to run it, in bytes.
    static double scratch_bytes(const ConvShape& shape);

private:
    // Neighbouring kernel positions along the width that are neighbours in memory.
    struct Run {
        int64_t depth, height, width;  // where the first one reads
        int64_t taps, k;               // how many; the first element of a row that they make
    };
    struct Phase {
        std::array<AxisPhase, 3> axes;
        std::vector<Run> runs;
        int64_t depth = 0;               // elements of a row
        bool direct = false;             // rows are the places of the input as they lie
        bool scattered = false;          // its outputs are not neighbours
        AlignedBytes panels;             // of each group
        std::vector<int64_t> positions;  // of a depthwise convolution: where the weights of each tap are
    };
    struct Call;

    void add_phase(const float* weight, const std::array<AxisPhase, 3>& axes);
    void gather(const Call& call, const Phase& phase, int64_t group, int64_t row, int64_t k, int64_t count,
                float* to) const;
    void multiply(const Call& call, const Phase& phase, int64_t group, int64_t first_row, int64_t rows, int64_t begin,
                  int64_t end) const;
    void run_depthwise(const Call& call, const Phase& phase) const;

    ConvShape shape_;
    int64_t channels_, outputs_, panel_count_;  // of a group
    bool is_depthwise_;
    std::vector<Phase> phases_;
    std::vector<float> bias_;  // of each group, padded to whole panels; of a depthwise convolution as it is
};

// y = x w' + bias, w a matrix (outputs, inputs): a convolution whose images are single places.
inline ConvShape linear_shape(int64_t outputs, int64_t inputs) {
    ConvShape shape;
    shape.in_channels = inputs;
    shape.out_channels = outputs;
    return shape;
}

}  // namespace zeropoint
