// quantize, dequantize and fake_quantize on whole tensors: parameters checked and prepared, work spread over threads.
#pragma once

#include "kernels/fake_quantize/fake_quantize.h"
#include "operators/affine_parameters.h"

namespace zeropoint {

// float32 x -> integers y. Arithmetic is float64 if the scales are, else float32.
// Throws std::invalid_argument for a scale that is zero or not finite.
void quantize(const float* x, void* y, IntType dst, const Grid& grid, const ParameterView& scale,
              const ParameterView& zero_point, RoundingVariant variant, double qmin, double qmax);

// The same with one scale for all n elements. The variant decides how 1 / scale is rounded, too: PyTorch's decomposed
// op (split) divides in float64 and rounds the quotient, quantize_per_tensor divides in float32.
void quantize_tensor(const float* x, void* y, IntType dst, int64_t n, double scale, double zero_point,
                     RoundingVariant variant, double qmin, double qmax);
// 1 / scale as it takes it.
float inverse_scale(double scale, RoundingVariant variant);

// integers q -> float32 y; `zero_point` may be empty (0). See DequantizeArgs for `exact` and `wide`.
void dequantize(const void* q, IntType src, float* y, const Grid& grid, const ParameterView& scale,
                const ParameterView& zero_point, bool exact, bool wide);

// float32 x -> float32 y, and the mask unless it is null. Float zero points are `joined` into the rounding.
// `way_back` is used where float32 would not be exact.
void fake_quantize(const float* x, float* y, uint8_t* mask, const Grid& grid, const ParameterView& scale,
                   const ParameterView& zero_point, Beyond beyond, WayBack way_back, double qmin, double qmax);

// dx = dy * mask
void mask_gradient(const float* dy, const uint8_t* mask, float* dx, int64_t n);

}  // namespace zeropoint
