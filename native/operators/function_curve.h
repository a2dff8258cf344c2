// Where polynomials say for certain which byte a function of float32 is rounded to, quantized_function need not compute
// the function. See FunctionCurve.
#pragma once

#include "kernels/quantized_function/quantized_function.h"

#include <memory>

namespace zeropoint {

// For results in steps of 1 / inv of which none above `most` counts, as bytes end there. Null where polynomials are not
// worth it, or not known: tanh and sigmoid, and steps that are too fine for them.
std::unique_ptr<const FunctionCurve> make_curve(FloatFunction function, float inv, int32_t most);

}  // namespace zeropoint
