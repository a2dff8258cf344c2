// Special functions of float32 numbers, as functions.h computes others: in float64, with one fixed formula each. Where
// a series of powers loses no digits it is summed; beyond, an asymptotic series, or an integral by the trapezoidal
// rule, whose error falls faster than any power of its step. They are within a few units in the last place of float32.
#pragma once

#include "kernels/map/functions.h"

namespace zeropoint {
namespace {

namespace exact {

constexpr double kEuler = 0.57721566490153286061, kRootTwo = 1.41421356237309504880, kRootPi = 1.77245385090551602730;

// Of numbers beyond what `exp` tells apart.
inline double wide_exp(double v) {
    const double low = v < -700.0 ? -700.0 : v;
    const Exponential e(low > 700.0 ? 700.0 : low);
    return e.scale * e.q + e.scale;
}
inline double size_of(double v) { return v < 0.0 ? -v : v; }
inline bool is_whole(double v) { return std::floor(v) == v; }

// sin(v) and cos(v) of any number; what is left of a large one is that of its float64.
struct Circle {
    double sin, cos;

    explicit Circle(double v) {
        const double rest = size_of(v) > kLargeAngle ? v - 2.0 * kPi * std::floor(v / (2.0 * kPi)) : v;
        const Angle a = angle_of(size_of(rest) <= kLargeAngle ? rest : 0.0);
        sin = sin_of(a);
        cos = cos_of(a);
    }
};
// sin(pi v), exactly 0 for whole numbers.
inline double sin_pi(double v) {
    const double near = std::floor(v + 0.5), s = sin_of(angle_of((v - near) * kPi));
    return is_whole(near * 0.5) ? s : -s;
}

// ------------------------------------------------------------------------------------------------- the gamma function

// log(gamma(v)) of v > 0: shifted to 10 and more, Stirling's series there.
inline double lgamma_inside(double v) {
    double product = 1.0;
    for (; v < 10.0; v += 1.0) product *= v;
    const double i = 1.0 / v, w = i * i;
    const double tail =
        i *
        (1.0 / 12 - w * (1.0 / 360 - w * (1.0 / 1260 - w * (1.0 / 1680 - w * (1.0 / 1188 - w * (691.0 / 360360))))));
    return (v - 0.5) * log(v) - v + 0.91893853320467274178 + tail - log(product);
}
inline double lgamma(double v) {
    if (v != v) return v;
    if (size_of(v) == kInfinity || (v <= 0.0 && is_whole(v))) return kInfinity;
    if (v == 1.0 || v == 2.0) return 0.0;
    return v > 0.0 ? lgamma_inside(v) : log(kPi / size_of(sin_pi(v))) - lgamma_inside(1.0 - v);
}

inline double digamma(double v) {
    if (v != v || v == kInfinity) return v;
    if (v == 0.0) return with_sign(kInfinity, -v);
    if (v < 0.0 && (is_whole(v) || v == -kInfinity)) return kNan;
    double sum = 0.0;
    if (v < 0.0) {
        sum = -kPi * sin_pi(v + 0.5) / sin_pi(v);
        v = 1.0 - v;
    }
    for (; v < 10.0; v += 1.0) sum -= 1.0 / v;
    const double w = 1.0 / (v * v);
    const double tail =
        w * (1.0 / 12 - w * (1.0 / 120 - w * (1.0 / 252 - w * (1.0 / 240 - w * (1.0 / 132 - w * (691.0 / 32760))))));
    return sum + log(v) - 0.5 / v - tail;
}

// Hurwitz's sum of (q + k)^-s, of q > 0: nine terms, then Euler and Maclaurin's series.
inline double zeta_inside(double s, double q) {
    double sum = 0.0;
    for (int k = 0; k < 9; ++k, q += 1.0) sum += wide_exp(-s * log(q));
    constexpr double kTerms[] = {1.0 / 12,          -1.0 / 720,
                                 1.0 / 30240,       -1.0 / 1209600,
                                 1.0 / 47900160,    -691.0 / 1307674368000,
                                 1.0 / 74724249600, -3617.0 / 10670622842880000};
    const double last = wide_exp(-s * log(q));
    sum += last * q / (s - 1.0) + 0.5 * last;
    double factor = s * last / q;
    for (int k = 0; k < 8; ++k) {
        sum += kTerms[k] * factor;
        factor *= (s + 2 * k + 1) * (s + 2 * k + 2) / (q * q);
    }
    return sum;
}
// The terms below zero are those of another sum, from its begin to its end.
inline double zeta(double s, double q) {
    if (s != s || q != q) return kNan;
    if (s == 1.0) return kInfinity;
    if (s < 1.0) return kNan;
    if (q == kInfinity) return kNan;  // as in PyTorch
    if (q <= 0.0 && is_whole(q)) return kInfinity;
    if (q > 0.0) return zeta_inside(s, q);
    if (!is_whole(s)) return kNan;
    const double f = q - std::floor(q), below = zeta_inside(s, 1.0 - f) - zeta_inside(s, 1.0 - q);
    return zeta_inside(s, f) + (is_whole(s * 0.5) ? below : -below);
}
inline double polygamma(double n, double v) {
    if (!(n >= 0.0)) return kNan;
    if (n == 0.0) return digamma(v);
    if (n == 1.0 && v == kInfinity) return 0.0;
    if (n == 1.0 && v < 0.5) {  // PyTorch takes the sine of a rounded product: it has no poles below zero
        const double whole = Circle(3.14159274f * static_cast<float>(v)).sin;
        const double s = kPi / (v < 0.0 && is_whole(v) ? whole : sin_pi(v));
        return s * s - zeta(2.0, 1.0 - v);
    }
    const double size = wide_exp(lgamma_inside(n + 1.0)) * zeta(n + 1.0, v);
    return is_whole(n * 0.5) ? -size : size;
}

// The lower and the upper part of the gamma function's integral, as parts of the whole: a series, a continued fraction,
// or their limit for large a.
struct GammaParts {
    double lower, upper;

    GammaParts(double a, double x) {
        const bool none = a == 0.0 && !(x > 0.0), both = a == kInfinity && x == kInfinity;
        if (a < 0.0 || x < 0.0 || none || both) {
            lower = upper = kNan;
        } else if (a == 0.0 || x == kInfinity) {
            set_upper(0.0);
        } else if (x == 0.0 || a == kInfinity) {
            set_lower(0.0);
        } else if (a != a || x != x) {
            lower = upper = kNan;
        } else if (a < 0.5 && x < 1.0) {  // all but nothing is below: what is above has its own series
            const double near = a * (-kEuler + a * (kPi * kPi / 12 - a * 0.40068563438653142847));
            const double power = a * log(x) - (a < 1e-4 ? near : lgamma_inside(1.0 + a));
            double term = 1.0, sum = 0.0;
            for (int k = 1; k < 20; ++k) {
                term *= -x / k;
                sum += term / (k + a);
            }
            set_upper(-(expm1(power) + exp(power) * a * sum));
        } else if (a > 10000.0) {
            const double l = x / a - 1.0, half = size_of(l) < 1e-4 ? l * l * (0.5 - l / 3) : l - log1p(l);
            const double e = with_sign(std::sqrt(2.0 * half), l);
            const double first = size_of(l) < 1e-4 ? -1.0 / 3 + e / 12 : 1.0 / l - 1.0 / e;
            const double rest = wide_exp(-a * half) / std::sqrt(2.0 * kPi * a) * first;
            if (l < 0.0)
                set_lower(0.5 * erfc(-e * std::sqrt(0.5 * a)) - rest);
            else
                set_upper(0.5 * erfc(e * std::sqrt(0.5 * a)) + rest);
        } else {
            const double front = wide_exp(a * log(x) - x - lgamma_inside(a));
            if (x < a + 1.0) {
                double term = 1.0 / a, sum = term;
                for (double k = a + 1.0; term > sum * 1e-17; k += 1.0) sum += term *= x / k;
                set_lower(front * sum);
            } else {
                double b = x + 1.0 - a, c = 1e300, d = 1.0 / b, product = d;
                for (int k = 1; k < 10000; ++k) {
                    const double step = -k * (k - a);
                    b += 2.0;
                    d = 1.0 / (step * d + b);
                    c = b + step / c;
                    product *= d * c;
                    if (size_of(d * c - 1.0) < 1e-15) break;
                }
                set_upper(front * product);
            }
        }
    }

private:
    void set_lower(double v) { lower = v, upper = 1.0 - v; }
    void set_upper(double v) { upper = v, lower = 1.0 - v; }
};
inline double igamma(double a, double x) { return GammaParts(a, x).lower; }
inline double igammac(double a, double x) { return GammaParts(a, x).upper; }

// ------------------------------------------------------------------------------------------------ the error function

// v with erfc(v) = q, of 0 < q < 1: a rough formula, then three steps of Halley's method.
inline double erfc_inverse(double q) {
    const double t = std::sqrt(-2.0 * log(0.5 * q));
    const double under = 1.0 + t * (1.432788 + t * (0.189269 + t * 0.001308));
    double v = (t - (2.515517 + t * (0.802853 + t * 0.010328)) / under) / kRootTwo;
    for (int step = 0; step < 3; ++step) {
        const double u = (q - erfc_inside(v)) * (0.5 * kRootPi) * wide_exp(v * v);
        v -= u / (1.0 + v * u);
    }
    return v;
}
inline double erfinv(double v) {
    const double a = size_of(v);
    if (!(a < 1.0)) return a == 1.0 ? with_sign(kInfinity, v) : kNan;
    if (a > 0.5) return with_sign(erfc_inverse(1.0 - a), v);
    double x = v * (0.5 * kRootPi) * (1.0 + v * v * (kPi / 12));
    for (int step = 0; step < 3; ++step) {
        const double u = (erf(x) - v) * (0.5 * kRootPi) * exp(x * x);
        x -= u / (1.0 + x * u);
    }
    return x;
}
inline double ndtri(double p) {
    if (!(p >= 0.0 && p <= 1.0)) return kNan;
    if (p == 0.0 || p == 1.0) return p == 0.0 ? -kInfinity : kInfinity;
    if (p > 0.25 && p < 0.75) return kRootTwo * erfinv(2.0 * p - 1.0);
    return p < 0.5 ? -kRootTwo * erfc_inverse(2.0 * p) : kRootTwo * erfc_inverse(2.0 * (1.0 - p));
}
inline double erfcx(double v) {
    const double a = size_of(v), s = 0.5 / (a * a);
    const double far = (1.0 - s * (1.0 - s * (3.0 - s * (15.0 - s * (105.0 - s * 945.0))))) / (a * kRootPi);
    const double scaled = a > 10.0 ? far : erfc_scaled(a);
    return v < 0.0 ? 2.0 * wide_exp(v * v) - scaled : scaled;
}
inline double log_ndtr(double v) {
    const double t = v / kRootTwo;
    return v < -1.0 ? log(0.5 * erfcx(-t)) - t * t : log1p(-0.5 * erfc(t));
}

// ------------------------------------------------------------------------------------------------- Bessel's functions

constexpr double kFar = 20.0;  // from here on asymptotic series have all digits

// The sum of z^k / (k! (k + order)!), times 1 or v / 2; z = v^2 / 4 is I, -v^2 / 4 is J.
inline double bessel_series(int order, double v, double z) {
    double term = order == 0 ? 1.0 : 0.5 * v, sum = term;
    for (int k = 1; k < 100; ++k) sum += term *= z / (static_cast<double>(k) * (k + order));
    return sum;
}
// I(v) exp(-|v|).
inline double scaled_i(int order, double v) {
    const double a = size_of(v);
    if (!(a > kFar)) return bessel_series(order, v, 0.25 * v * v) * exp(-a);
    const double mu = 4.0 * order * order;
    double term = 1.0, sum = 1.0;
    for (int k = 1; k < 20; ++k) sum += term *= ((2 * k - 1) * (2 * k - 1) - mu) / (8.0 * k * a);
    const double size = sum / std::sqrt(2.0 * kPi * a);
    return order == 0 ? size : with_sign(size, v);
}
inline double i0e(double v) { return scaled_i(0, v); }
inline double i1e(double v) { return scaled_i(1, v); }
// Of infinity NaN, as in PyTorch: zero times infinity.
inline double i0(double v) { return size_of(v) == kInfinity ? kNan : scaled_i(0, v) * wide_exp(size_of(v)); }
inline double i1(double v) { return size_of(v) == kInfinity ? kNan : scaled_i(1, v) * wide_exp(size_of(v)); }

// K(v) exp(v) of v > 0, the integral of exp(v - v cosh t) cosh(order t).
inline double scaled_k(double order, double v) {
    if (v > kFar) {
        const double mu = 4.0 * order * order;
        double term = 1.0, sum = 1.0;
        for (int k = 1; k < 20; ++k) sum += term *= (mu - (2 * k - 1) * (2 * k - 1)) / (8.0 * k * v);
        return sum * std::sqrt(0.5 * kPi / v);
    }
    constexpr double kStep = 0.125;
    double sum = 0.5;
    for (int k = 1; k < 2000; ++k) {
        const double t = k * kStep, e = wide_exp(t), o = wide_exp(order * t);
        const double below = v * (0.5 * (e + 1.0 / e) - 1.0);
        if (below > 60.0) break;
        sum += wide_exp(-below) * 0.5 * (o + 1.0 / o);
    }
    return sum * kStep;
}
inline double k_of(int order, double v, bool scaled) {
    if (!(v > 0.0)) return v == 0.0 ? kInfinity : kNan;
    return scaled_k(order, v) * (scaled ? 1.0 : wide_exp(-v));
}
inline double modified_bessel_k0(double v) { return k_of(0, v, false); }
inline double modified_bessel_k1(double v) { return k_of(1, v, false); }
inline double scaled_modified_bessel_k0(double v) { return k_of(0, v, true); }
inline double scaled_modified_bessel_k1(double v) { return k_of(1, v, true); }

// J and Y of v > 14 by Hankel's series: sqrt(2 / (pi v)) (p cos - q sin), and with (p sin + q cos), of v less 1/4 or
// 3/4 pi.
struct Hankel {
    double j, y;

    Hankel(int order, double v) {
        const double mu = 4.0 * order * order;
        double term = 1.0, p = 1.0, q = 0.0;
        for (int k = 1; k < 24; ++k) {
            term *= (mu - (2 * k - 1) * (2 * k - 1)) / (8.0 * k * v);
            const double part = (k / 2) % 2 == 0 ? term : -term;
            (k % 2 == 0 ? p : q) += part;
        }
        const Circle at(v);
        const double c = (order == 0 ? at.sin + at.cos : at.sin - at.cos) / kRootTwo;
        const double s = (order == 0 ? at.sin - at.cos : -at.sin - at.cos) / kRootTwo;
        const double size = std::sqrt(2.0 / (kPi * v));
        j = size * (p * c - q * s);
        y = size * (p * s + q * c);
    }
};
constexpr double kNear = 14.0;
inline double j_of(int order, double v) {
    const double a = size_of(v);
    if (a == kInfinity) return kNan;  // as in PyTorch
    if (!(a > kNear)) return bessel_series(order, v, -0.25 * v * v);
    const double j = Hankel(order, a).j;
    return order != 0 && v < 0.0 ? -j : j;
}
// The sum of J's series times the harmonic numbers of k and k + order, and the logarithm.
inline double y_of(int order, double v) {
    if (!(v > 0.0)) return v == 0.0 ? -kInfinity : kNan;
    if (v == kInfinity) return kNan;
    if (v > kNear) return Hankel(order, v).y;
    const double z = -0.25 * v * v;
    double term = order == 0 ? 1.0 : 0.5 * v, low = -kEuler, high = order == 0 ? low : low + 1.0, sum = 0.0;
    for (int k = 0; k < 100; ++k) {
        sum += term * (low + high);
        term *= z / ((k + 1.0) * (k + 1 + order));
        low += 1.0 / (k + 1);
        high += 1.0 / (k + 1 + order);
    }
    const double first = order == 0 ? 0.0 : -2.0 / (kPi * v);
    return first + (2.0 * log(0.5 * v) * j_of(order, v) - sum) / kPi;
}
inline double bessel_j0(double v) { return j_of(0, v); }
inline double bessel_j1(double v) { return j_of(1, v); }
inline double bessel_y0(double v) { return y_of(0, v); }
inline double bessel_y1(double v) { return y_of(1, v); }

inline double spherical_bessel_j0(double v) {
    const double w = v * v;
    if (size_of(v) == kInfinity) return 0.0;
    return size_of(v) < 0.5 ? 1.0 - w / 6 * (1.0 - w / 20 * (1.0 - w / 42 * (1.0 - w / 72 * (1.0 - w / 110))))
                            : Circle(v).sin / v;
}

// Between -6 and 2 the series of powers; above K of 1/3, below the asymptotic series.
inline double airy_ai(double v) {
    if (!(size_of(v) < kInfinity)) return kNan;
    const double a = size_of(v), z = 2.0 / 3 * a * std::sqrt(a);
    if (v > 2.0) return std::sqrt(v / 3) / kPi * scaled_k(1.0 / 3, z) * wide_exp(-z);
    if (v < -6.0) {
        double term = 1.0, p = 1.0, q = 0.0;
        for (int k = 1; k < 20; ++k) {
            term *= (6.0 * k - 5) * (6.0 * k - 3) * (6.0 * k - 1) / (216.0 * k * (2 * k - 1) * z);
            const double part = (k / 2) % 2 == 0 ? term : -term;
            (k % 2 == 0 ? p : q) += part;
        }
        const Circle at(z);
        return ((at.cos + at.sin) * p + (at.sin - at.cos) * q) / (kRootTwo * kRootPi * std::sqrt(std::sqrt(a)));
    }
    const double cube = v * v * v;
    double even = 0.35502805388781723926, odd = 0.25881940379280679841 * v, sum = even - odd;
    for (int k = 1; k < 60; ++k) {
        even *= cube / (3.0 * k * (3 * k - 1));
        odd *= cube / (3.0 * k * (3 * k + 1));
        sum += even - odd;
    }
    return sum;
}

// --------------------------------------------------------------------------------------------- orthogonal polynomials

// The degree as PyTorch takes it: without what is behind the point, -1 if it is no number of 64 bits.
inline double degree_of(double n) { return size_of(n) < 0x1p63 ? std::trunc(n) : -1.0; }

// p0 = 1, p1, and the rule that gives the next of two.
template <class Next>
double polynomial(double degree, double first, Next next) {
    if (degree < 0.0) return 0.0;
    if (degree == 0.0) return 1.0;
    double before = 1.0, now = first;
    for (double k = 1.0; k < degree && now == now; k += 1.0) {
        const double after = next(k, now, before);
        before = now;
        now = after;
    }
    return now;
}
constexpr double kMany = 65536.0;  // of a higher degree, polynomials are close to what they tend to

// T, U, V and W: of the angle a whose cosine is x, cos(n a), sin((n + 1) a) / sin(a), cos((n + 1/2) a) / cos(a / 2) and
// sin((n + 1/2) a) / sin(a / 2).
enum class Chebyshev { t, u, v, w };
inline double chebyshev(Chebyshev kind, double x, double n) {
    const double degree = degree_of(n);
    if (degree > 64.0 && size_of(x) <= 1.0) {
        const double a = 2.0 * atan_inside(std::sqrt((1.0 - x) / (1.0 + x)));
        const double turn = x < 0.0 && !is_whole(degree * 0.5) ? -1.0 : 1.0, count = 2.0 * degree + 1.0;
        switch (kind) {
            case Chebyshev::t: return size_of(x) == 1.0 ? turn : Circle(degree * a).cos;
            case Chebyshev::u:
                return size_of(x) == 1.0 ? turn * (degree + 1.0) : Circle((degree + 1.0) * a).sin / Circle(a).sin;
            case Chebyshev::v:
                return size_of(x) == 1.0 ? (x > 0.0 ? 1.0 : turn * count)
                                         : Circle((degree + 0.5) * a).cos / Circle(0.5 * a).cos;
            case Chebyshev::w:
                return size_of(x) == 1.0 ? (x > 0.0 ? count : turn)
                                         : Circle((degree + 0.5) * a).sin / Circle(0.5 * a).sin;
        }
    }
    const double first = kind == Chebyshev::t   ? x
                         : kind == Chebyshev::u ? 2.0 * x
                         : kind == Chebyshev::v ? 2.0 * x - 1.0
                                                : 2.0 * x + 1.0;
    return polynomial(degree, first, [x](double, double p, double before) { return 2.0 * x * p - before; });
}
inline double chebyshev_polynomial_t(double x, double n) { return chebyshev(Chebyshev::t, x, n); }
inline double chebyshev_polynomial_u(double x, double n) { return chebyshev(Chebyshev::u, x, n); }
inline double chebyshev_polynomial_v(double x, double n) { return chebyshev(Chebyshev::v, x, n); }
inline double chebyshev_polynomial_w(double x, double n) { return chebyshev(Chebyshev::w, x, n); }
inline double shifted_chebyshev_polynomial_t(double x, double n) { return chebyshev_polynomial_t(2.0 * x - 1.0, n); }
inline double shifted_chebyshev_polynomial_u(double x, double n) { return chebyshev_polynomial_u(2.0 * x - 1.0, n); }
inline double shifted_chebyshev_polynomial_v(double x, double n) { return chebyshev_polynomial_v(2.0 * x - 1.0, n); }
inline double shifted_chebyshev_polynomial_w(double x, double n) { return chebyshev_polynomial_w(2.0 * x - 1.0, n); }
constexpr double kMostHermite = 128.0;  // beyond, PyTorch gives NaN
inline double hermite_polynomial_h(double x, double n) {
    const double degree = degree_of(n);
    const auto next = [x](double k, double p, double before) { return 2.0 * (x * p - k * before); };
    return degree > kMostHermite ? kNan : polynomial(degree, 2.0 * x, next);
}
inline double hermite_polynomial_he(double x, double n) {
    const double degree = degree_of(n);
    const auto next = [x](double k, double p, double before) { return x * p - k * before; };
    return degree > kMostHermite ? kNan : polynomial(degree, x, next);
}
inline double laguerre_polynomial_l(double x, double n) {
    const double degree = degree_of(n), far = 2.0 * std::sqrt((degree + 0.5) * size_of(x));
    if (degree > kMany && size_of(x) < kInfinity) return wide_exp(0.5 * x) * (x < 0.0 ? i0(far) : bessel_j0(far));
    const auto next = [x](double k, double p, double before) {
        return ((2.0 * k + 1.0 - x) * p - k * before) / (k + 1.0);
    };
    return polynomial(degree, 1.0 - x, next);
}
inline double legendre_polynomial_p(double x, double n) {
    const double degree = degree_of(n), c = size_of(x);
    if (degree > kMany && c <= 1.0) {
        const double a = 2.0 * atan_inside(std::sqrt((1.0 - c) / (1.0 + c)));
        const double p = a == 0.0 ? 1.0 : std::sqrt(a / Circle(a).sin) * bessel_j0((degree + 0.5) * a);
        return x < 0.0 && !is_whole(degree * 0.5) ? -p : p;
    }
    const auto next = [x](double k, double p, double before) {
        return ((2.0 * k + 1.0) * x * p - k * before) / (k + 1.0);
    };
    return polynomial(degree, x, next);
}

}  // namespace exact

}  // namespace
}  // namespace zeropoint
