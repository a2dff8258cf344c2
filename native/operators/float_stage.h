// A function of float32 between the scale of a linear layer and the rounding of its output, or behind a layer whose
// output is float32: gelu, silu, sigmoid, tanh. The bytes are those of three steps, linear to float32,
// operators/float_functions.h, operators/affine.h; but the float32 are made and read for some rows and panels at a
// time, in the L1 cache of the thread that made them.
#pragma once

#include "kernels/quantized_function/quantized_function.h"
#include "kernels/types.h"
#include "operators/matmul.h"

#include <memory>

namespace zeropoint {

// The output's zero_point, lo and hi are those of the bytes; its low and high bound the float32 that go in.
struct FloatStage {
    FloatFunction function = FloatFunction::gelu;
    double scale = 1;  // of the bytes, if there are some
    // For bytes of which the largest is `most` above the zero point, and quicker with it: see prepare().
    std::shared_ptr<const FunctionCurve> curve{};
    int32_t most = 0;

    // Once, for outputs with this difference of hi and zero_point.
    void prepare(int32_t difference);
};

// The panels [begin, end) of the rows of `a`, whose epilogue makes float32, to `output`.
void multiply_through(const GemmKernel& kernel, const MatmulOutput& output, GemmArgs a, int64_t begin, int64_t end);

}  // namespace zeropoint
