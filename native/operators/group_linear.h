// Linear layers, and embeddings, of weights with 4 or 8 bits and 16-bit scales for groups of inputs. See
// kernels/group_gemm/group_gemm.h for the formulas and the packing. Weights are read where they are: they are stored as
// every kernel reads them.
#pragma once

#include "kernels/float_function/float_function.h"
#include "kernels/group_gemm/group_gemm.h"

#include <cstdint>

namespace zeropoint {

struct GroupWeight {
    int bits = 4;
    int64_t outputs = 0, inputs = 0, group = kGroupUnit;
    const uint8_t* data = nullptr;
    const uint16_t* scale = nullptr;
    const uint16_t* minimum = nullptr;  // or nullptr

    int64_t groups() const { return inputs / group; }
    int64_t panels() const { return (outputs + kGroupPanel - 1) / kGroupPanel; }
};

// What becomes of the sums.
struct GroupEnd {
    const float* bias = nullptr;      // or nullptr
    const float* residual = nullptr;  // (rows, outputs), added last; or nullptr
    bool has_function = false;
    FloatFunction function = FloatFunction::silu;
    bool gated = false;  // y = function(first half of the outputs) * second half; without residual
};

// y = x w' and then `end`: (rows, inputs) to (rows, outputs), or half of them if it is gated. `wide` is memory for
// (rows, outputs) floats, used only if it is gated.
void group_linear(const GroupWeight& w, const float* x, int64_t rows, const GroupEnd& end, float* wide, float* y);

// y = rows of the weight, (count, inputs), times `factor`. Throws std::invalid_argument for an index without a row.
void group_embedding(const GroupWeight& w, const int64_t* indices, int64_t count, float factor, float* y);

}  // namespace zeropoint
