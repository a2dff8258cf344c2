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

#include <type_traits>

namespace zeropoint {
namespace {  // internal linkage: this header is compiled once per instruction set

constexpr float kLog2e = 1.44269502162933349609375f;
constexpr float kLn2High = 0.693145751953125f;  // 16 bits: times n it is exact
constexpr float kLn2Low = 1.428606820309417e-06f;
// (expm1(r) - r) / r^2 for |r| <= ln(2) / 2, within 3e-8 of expm1.
constexpr float kExponential[5] = {0.5f, 0.16666576266288757f, 0.04166646301746368f, 0.00836323574185371f,
                                   0.001393373357132077f};
constexpr float kSigmoidBound = 87.0f, kTanhBound = 10.0f;

// Where fma is one instruction, and where it is not: there V::Horner is the quickest way to polynomials, and some fma
// are the same as two operations.
template <class V, class = void>
struct Fused {
    // c[0] + c[1] r + ... by Horner's rule with fma.
    template <int kTerms>
    static typename V::F of(const float (&c)[kTerms], typename V::F r) {
        typename V::F p = V::fma(V::set(c[kTerms - 1]), r, V::set(c[kTerms - 2]));
        for (int i = kTerms - 3; i >= 0; --i) p = V::fma(p, r, V::set(c[i]));
        return p;
    }
    // Of an exact product.
    static typename V::F add_exact(typename V::F a, typename V::F b, typename V::F c) { return V::fma(a, b, c); }
    // s + s * q for a power of two s, where the result is no subnormal number.
    static typename V::F scaled(typename V::F s, typename V::F q) { return V::fma(s, q, s); }
};
template <class V>
struct Fused<V, std::void_t<typename V::Horner>> : V::Horner {
    static typename V::F add_exact(typename V::F a, typename V::F b, typename V::F c) {
        return V::add(V::mul(a, b), c);
    }
    static typename V::F scaled(typename V::F s, typename V::F q) { return V::mul(s, V::add(V::set(1.0f), q)); }
};

// For any vector type V of simd/.
template <class V>
struct Activations {
    using F = typename V::F;

    // exp(v) = scale + scale * q
    struct Exponential {
        F scale, q;

        F value() const { return Fused<V>::scaled(scale, q); }

        explicit Exponential(F v) {
            const F n = V::round(V::mul(v, V::set(kLog2e)));
            F r = Fused<V>::add_exact(n, V::set(-kLn2High), v);
            r = V::fma(n, V::set(-kLn2Low), r);
            q = V::fma(V::mul(r, r), Fused<V>::of(kExponential, r), r);
            scale = V::power_of_two(V::to_int(n));
        }
    };

    // Of -87 <= v <= 0.
    static F exp_inside(F v) { return Exponential(v).value(); }
    // Of v <= 0.
    static F exp(F v) {
        const F bound = V::set(-kSigmoidBound);
        return V::select(V::less(v, bound), V::set(0.0f), exp_inside(V::max(bound, v)));
    }
    static F sigmoid(F v) {
        const F bounded = V::clamp(v, V::set(-kSigmoidBound), V::set(kSigmoidBound));
        const Exponential e(V::mul(bounded, V::set(-1.0f)));
        return V::div(V::set(1.0f), V::add(V::set(1.0f), e.value()));
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
