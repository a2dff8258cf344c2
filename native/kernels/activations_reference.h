// The specification of kernels/activations.h, one number at a time. It is never optimized.
#pragma once

#include "kernels/activations.h"
#include "kernels/simd/fused.h"

#include <cmath>

namespace zeropoint {
namespace {

struct OneActivation {
    // exp(v) = scale + scale * q
    struct Exponential {
        float scale, q;

        explicit Exponential(float v) {
            const float n = std::nearbyint(v * kLog2e);
            float r = fused(n, -kLn2High, v);
            r = fused(n, -kLn2Low, r);
            float p = kExponential[4];
            for (int i = 3; i >= 0; --i) p = fused(p, r, kExponential[i]);
            q = fused(r * r, p, r);
            scale = std::isnan(n) ? 1.0f : std::ldexp(1.0f, static_cast<int>(n));
        }
    };

    static float clamped(float v, float bound) { return v > bound ? bound : v < -bound ? -bound : v; }

    // Of v <= 0.
    static float exp(float v) {
        if (v < -kSigmoidBound) return 0.0f;
        const Exponential e(v);
        return fused(e.scale, e.q, e.scale);
    }
    static float sigmoid(float v) {
        const Exponential e(-clamped(v, kSigmoidBound));
        return 1.0f / (1.0f + fused(e.scale, e.q, e.scale));
    }
    static float tanh(float v) {
        const Exponential e(2.0f * clamped(v, kTanhBound));
        const float m = fused(e.scale, e.q, e.scale - 1.0f);
        return m / (m + 2.0f);
    }
};

}  // namespace
}  // namespace zeropoint
