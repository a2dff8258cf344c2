// The specification of float_function, one element at a time. It is never optimized.
#include "kernels/float_function/float_function.h"
#include "kernels/activations_reference.h"

namespace zeropoint {
namespace {

float vanishing(float v) { return v < -kSigmoidBound ? 0.0f : OneActivation::sigmoid(v); }

float gelu(float x) {
    if (x < -kTailEnd) return x * 0.0f;
    const float size = std::fabs(x) > kTailEnd ? kTailEnd : std::fabs(x);
    const float t = 1.0f / std::fma(size, kTailRate, 1.0f), square = t * t;
    float even = kTail[6], odd = kTail[7];
    for (int i = 4; i >= 0; i -= 2) {
        even = std::fma(even, square, kTail[i]);
        odd = std::fma(odd, square, kTail[i + 1]);
    }
    const float tail = OneActivation::exp(size * -0.5f * size) * (std::fma(odd, t, even) * t);
    return std::fma(-size, tail, x < 0.0f ? 0.0f : x);
}

float of(FloatFunction function, float x) {
    switch (function) {
        case FloatFunction::gelu: return gelu(x);
        case FloatFunction::gelu_tanh: return x * vanishing(x * std::fma(x * x, kGeluThird, kGeluFirst));
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
