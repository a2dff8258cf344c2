// The specification of float_function, one element at a time. It is never optimized.
#include "kernels/float_function/float_function.h"
#include "kernels/activations_reference.h"
#include "kernels/simd/fused.h"

namespace zeropoint {
namespace {

float vanishing(float v) { return v < -kSigmoidBound ? 0.0f : OneActivation::sigmoid(v); }

float gelu(float x) {
    if (x < -kTailEnd) return x * 0.0f;
    const float size = std::fabs(x) > kTailEnd ? kTailEnd : std::fabs(x);
    const float t = 1.0f / fused(size, kTailRate, 1.0f), square = t * t;
    float even = kTail[6], odd = kTail[7];
    for (int i = 4; i >= 0; i -= 2) {
        even = fused(even, square, kTail[i]);
        odd = fused(odd, square, kTail[i + 1]);
    }
    const float tail = OneActivation::exp(size * -0.5f * size) * (fused(odd, t, even) * t);
    return fused(-size, tail, x < 0.0f ? 0.0f : x);
}

float of(FloatFunction function, float x) {
    switch (function) {
        case FloatFunction::gelu: return gelu(x);
        case FloatFunction::gelu_tanh: return x * vanishing(x * fused(x * x, kGeluThird, kGeluFirst));
        case FloatFunction::tanh: return OneActivation::tanh(x);
        case FloatFunction::sigmoid: return vanishing(x);
        case FloatFunction::silu: return x * vanishing(x);
    }
    return x;
}

}  // namespace

void float_function_reference(const FloatFunctionArgs& a, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) a.y[i] = of(a.function, a.x[i]);
}

}  // namespace zeropoint
