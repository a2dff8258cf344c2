// Strips: some lines of the output of one image, the unit of work of every convolution. See operators/convolution.h for
// the words.
#pragma once

#include "kernels/gemm/gemm.h"
#include "operators/conv_shape.h"

#include <array>
#include <vector>

namespace zeropoint {

// The lines [line, line + lines) of one image and one place along the depth, of the outputs of a phase.
struct Strip {
    int64_t image, depth, line, lines;
};

// One phase of a convolution over inputs of a given size, cut into strips.
struct Strips {
    const std::array<AxisPhase, 3>* axes = nullptr;
    Size3 counts{};     // outputs along each axis
    int64_t lines = 1;  // of the output, in a strip
    int64_t per_plane = 0;
    Extent height, width;  // of the operand
    size_t first_tap = 0, tap_count = 0;
    int64_t elements = 0;  // of the operand

    Strips(const std::array<AxisPhase, 3>& phase, const Size3& out);

    int64_t planes(int64_t images) const { return images * counts[0]; }
    int64_t pixels() const { return lines * counts[2]; }
    Strip at(int64_t number) const;

    // Once `lines` and `width` are known: the rest, and the taps of the operand, behind those that are there. `merged`:
    // taps along the width are one.
    void place(int64_t channels, bool merged, std::vector<int64_t>& taps);

    // Where the outputs [first, first + m) of a strip are, in the operand and in an output of size `out` with `pixel`
    // elements in each place.
    void rows(const Strip& strip, int64_t first, int64_t m, int64_t channels, const Size3& out, int64_t pixel,
              int64_t* rows, int64_t* y_rows) const;
    // The same of kernels of one place, without padding, in an input of size `in`.
    void rows_in_place(const Strip& strip, int64_t first, int64_t m, int64_t channels, const Size3& in,
                       int64_t* rows) const;
};

// The input of a convolution, as its strips read it.
struct StripInput {
    const uint8_t* x;
    Size3 in;
    int64_t channels;
    bool channels_first;
    Activation activation;
    // Of the kernel: what it makes of activations, the bytes of an element, and what each byte of a zero point is.
    void (*convert)(const uint8_t* x, int64_t n, const Activation& activation, void* to);
    int64_t size;
    int zero;

    // The operand of one strip.
    void prepare(const Strips& strips, const Strip& strip, uint8_t* to) const;

private:
    void fill(uint8_t* to, int64_t pixels) const;
    const uint8_t* line(int64_t image, int64_t id, int64_t ih) const;
    void prepare_line(const Strips& strips, const uint8_t* from, uint8_t* to) const;
};

}  // namespace zeropoint
