// Functions of float32 made of one exponential, the same to the last bit on every instruction set:
//
//   n = rne(v * log2(e));   r = fma(n, -ln2_high, v);   r = fma(n, -ln2_low, r)
//   q = fma(r * r, p(r), r)                           p by Horner's rule with fma; q = expm1(r)
//   exp(v)     = fma(s, q, s), s = 2^n                for v <= 0; 0 where v < -87
//   sigmoid(v) = 1 / (1 + fma(s, q, s))               of -clamp(v, -87, 87)
//   tanh(v)    = m / (m + 2),  m = fma(s, q, s - 1)   of 2 * clamp(v, -10, 10)
//
// within three units in the last place. kernels/activations_reference.h has them for one number.
#pragma once

namespace zeropoint {
namespace {  // internal linkage: this header is compiled once per instruction set

constexpr float kLog2e = 1.44269502162933349609375f;
constexpr float kLn2High = 0.693145751953125f;  // 16 bits: times n it is exact
constexpr float kLn2Low = 1.428606820309417e-06f;
// (expm1(r) - r) / r^2 for |r| <= ln(2) / 2, within 3e-8 of expm1.
constexpr float kExponential[5] = {0.5f, 0.16666576266288757f, 0.04166646301746368f, 0.00836323574185371f,
                                   0.001393373357132077f};
constexpr float kSigmoidBound = 87.0f, kTanhBound = 10.0f;

// For any vector type V of simd/.
template <class V>
struct Activations {
    using F = typename V::F;

    // exp(v) = scale + scale * q
    struct Exponential {
        F scale, q;

        explicit Exponential(F v) {
            const F n = V::round(V::mul(v, V::set(kLog2e)));
            F r = V::fma(n, V::set(-kLn2High), v);
            r = V::fma(n, V::set(-kLn2Low), r);
            F p = V::fma(V::set(kExponential[4]), r, V::set(kExponential[3]));
            p = V::fma(p, r, V::set(kExponential[2]));
            p = V::fma(p, r, V::set(kExponential[1]));
            p = V::fma(p, r, V::set(kExponential[0]));
            q = V::fma(V::mul(r, r), p, r);
            scale = V::power_of_two(V::to_int(n));
        }
    };

    // Of -87 <= v <= 0.
    static F exp_inside(F v) {
        const Exponential e(v);
        return V::fma(e.scale, e.q, e.scale);
    }
    // Of v <= 0.
    static F exp(F v) {
        const F bound = V::set(-kSigmoidBound);
        return V::select(V::less(v, bound), V::set(0.0f), exp_inside(V::max(bound, v)));
    }
    static F sigmoid(F v) {
        const F bounded = V::clamp(v, V::set(-kSigmoidBound), V::set(kSigmoidBound));
        const Exponential e(V::mul(bounded, V::set(-1.0f)));
        return V::div(V::set(1.0f), V::add(V::set(1.0f), V::fma(e.scale, e.q, e.scale)));
    }
    static F tanh(F v) {
        const F bounded = V::clamp(v, V::set(-kTanhBound), V::set(kTanhBound));
        const Exponential e(V::mul(bounded, V::set(2.0f)));
        const F m = V::fma(e.scale, e.q, V::sub(e.scale, V::set(1.0f)));
        return V::div(m, V::add(m, V::set(2.0f)));
    }
};

}  // namespace
}  // namespace zeropoint
