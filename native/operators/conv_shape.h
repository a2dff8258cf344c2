// The shape of a convolution, and what follows from it: phases and taps, and the strips that the work is cut into. See
// operators/convolution.h for the words.
#pragma once

#include "kernels/gemm/gemm.h"

#include <array>
#include <cstddef>
#include <vector>

namespace zeropoint {

using Size3 = std::array<int64_t, 3>;  // depth, height, width; missing axes are 1

struct ConvShape {
    int64_t in_channels = 1, out_channels = 1, groups = 1;
    Size3 kernel{1, 1, 1}, stride{1, 1, 1}, padding{0, 0, 0}, dilation{1, 1, 1};
    bool transposed = false;
    Size3 output_padding{0, 0, 0};  // transposed only

    // A kernel of its own for each channel.
    bool is_depthwise() const { return groups > 1 && groups == in_channels && groups == out_channels; }
    // Throws std::invalid_argument if it has no output.
    Size3 output_size(const Size3& in) const;
    // The most memory that a thread takes to run it, beside its input, its output and its weights.
    double scratch_bytes(int64_t images, const Size3& in) const;
    double scratch_bytes_as_is(int64_t images, const Size3& in) const;  // not turned
    // The number of phases.
    int64_t phases() const { return transposed ? stride[0] * stride[1] * stride[2] : 1; }
};

// Throws std::invalid_argument if there is no such convolution.
void require_valid(const ConvShape& shape);

// One axis of a phase: its outputs are first + step j, and read the inputs in_step j + offset for each of the taps.
struct AxisPhase {
    struct Tap {
        int64_t index, offset;
    };
    int64_t first = 0, step = 1, in_step = 1;
    std::vector<Tap> taps;  // in order of offset

    int64_t count(int64_t out) const { return out > first ? (out - first + step - 1) / step : 0; }
};

// The phases of one axis: one, or as many as the stride of a transposed convolution.
std::vector<AxisPhase> phases_of(const ConvShape& shape, size_t axis);

// The offsets of its first and last tap, and whether taps are neighbours.
int64_t lowest(const AxisPhase& phase);
int64_t highest(const AxisPhase& phase);
bool neighbours(const AxisPhase& phase);

// The inputs that `count` neighbouring outputs of a phase read along one axis, as they are kept in the operand.
struct Extent {
    bool picked = false;  // with one tap, only those are kept that are read
    int64_t size = 0;     // inputs kept
    int64_t step = 1;     // kept inputs from one output to the next

    Extent() = default;
    Extent(const AxisPhase& phase, int64_t count);
    // The input at place i of those kept for the outputs from `first` on.
    int64_t input(const AxisPhase& phase, int64_t first, int64_t i) const;
    int64_t place(const AxisPhase& phase, const AxisPhase::Tap& tap) const;
    // Whether one of the first `count` outputs reads what is kept at place i.
    bool is_read(const AxisPhase& phase, int64_t count, int64_t i) const;
};

// A kernel of one column over an input of one column is a kernel of one row over one row: in memory they are the same,
// but there its positions make one tap. That matters for a few channels, which else are padded.
bool is_column(const ConvShape& shape);
// And a depthwise kernel of one row over an input of one row is one of a column: threads share lines, and one row is
// one line. For kernels that are not read in place.
bool is_line(const ConvShape& shape);
Size3 turned(const Size3& size);
ConvShape turned(ConvShape shape);

// Lines of a strip: about as many as the kernels take in one call, and so many that the threads end together.
int64_t strip_lines(int64_t planes, int64_t lines, int64_t width);

// Lines of a strip of a depthwise convolution. Preparing lines that two strips read, or those of a small image once for
// each of several chunks, costs more than the few multiplications: as many as the L2 cache holds.
// `line`: bytes of the operand for one line of the output.
int64_t depthwise_lines(int64_t planes, int64_t lines, int64_t line);

}  // namespace zeropoint
