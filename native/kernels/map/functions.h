// Functions of one or two float32 numbers: computed in float64 with one fixed formula each, rounded once. So they are
// within half a unit in the last place and a few billionths, and the same to the last bit on every CPU: no library is
// called, no product is contracted, and compilers may make vectors of the loops around them.
#pragma once

#include "kernels/float_bits.h"

#include <cmath>
#include <limits>

namespace zeropoint {
namespace {  // internal linkage: this header is compiled once per instruction set

namespace exact {

constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52: a number added to it loses its fraction
constexpr uint64_t kRoundBits = 0x4338000000000000;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kPi = 3.14159265358979323846, kHalfPi = 1.57079632679489661923;
constexpr double kLog2e = 1.44269504088896340736, kLog10e = 0.434294481903251827651;
constexpr double kLn2High = 0x1.62e42fefa0000p-1, kLn2Low = 0x1.cf79abc9e3b3ap-40;  // times n the first is exact

inline double with_sign(double size, double sign) {
    constexpr uint64_t kSign = uint64_t{1} << 63;
    return from_bits((bits_of(size) & ~kSign) | (bits_of(sign) & kSign));
}

// 2^n (1 + q) = exp(v) for |v| <= 700.
struct Exponential {
    double scale, q;

    explicit Exponential(double v) {
        const double shifted = v * kLog2e + kRound, n = shifted - kRound;
        const double r = (v - n * kLn2High) - n * kLn2Low;
        double p = 1.0 / 39916800;
        p = p * r + 1.0 / 3628800;
        p = p * r + 1.0 / 362880;
        p = p * r + 1.0 / 40320;
        p = p * r + 1.0 / 5040;
        p = p * r + 1.0 / 720;
        p = p * r + 1.0 / 120;
        p = p * r + 1.0 / 24;
        p = p * r + 1.0 / 6;
        p = p * r + 0.5;
        q = (p * r) * r + r;
        scale = from_bits((bits_of(shifted) + 1023) << 52);
    }
};

// As far as float32 can tell infinity and zero from anything else.
inline double bounded(double v) {
    const double low = v < -200.0 ? -200.0 : v;
    return low > 200.0 ? 200.0 : low;
}
inline double exp(double v) {
    const Exponential e(bounded(v));
    return e.scale * e.q + e.scale;
}
inline double expm1(double v) {
    const Exponential e(bounded(v));
    return v == 0.0 ? v : e.scale * e.q + (e.scale - 1.0);
}

// Of positive, normal numbers.
inline double log_inside(double v) {
    constexpr uint64_t kOne = 0x3ff0000000000000, kRootHalf = 0x3fe6a09e667f3bcd;
    const uint64_t shifted = bits_of(v) + (kOne - kRootHalf);
    const double exponent = from_bits(kRoundBits + ((shifted >> 52) - 1023)) - kRound;
    const double m = from_bits((shifted & 0x000fffffffffffff) + kRootHalf);  // in sqrt(1/2) .. sqrt(2)
    const double s = (m - 1.0) / (m + 1.0), w = s * s;
    double p = 1.0 / 19;
    p = p * w + 1.0 / 17;
    p = p * w + 1.0 / 15;
    p = p * w + 1.0 / 13;
    p = p * w + 1.0 / 11;
    p = p * w + 1.0 / 9;
    p = p * w + 1.0 / 7;
    p = p * w + 1.0 / 5;
    p = p * w + 1.0 / 3;
    const double fraction = 2.0 * s + 2.0 * s * (p * w);
    return exponent * kLn2High + (exponent * kLn2Low + fraction);
}
inline double log(double v) {
    const double inside = log_inside(v > 0.0 && v < kInfinity ? v : 1.0);
    const double outside = v == 0.0 ? -kInfinity : (v == kInfinity ? v : kNan);
    return v > 0.0 && v < kInfinity ? inside : outside;
}
inline double log1p(double v) {
    const double u = 1.0 + v;
    const double inside = log_inside(u > 0.0 && u < kInfinity ? u : 1.0) + (v - (u - 1.0)) / u;
    const double outside = u == 0.0 ? -kInfinity : (u == kInfinity ? u : kNan);
    return v == 0.0 ? v : (u > 0.0 && u < kInfinity ? inside : outside);
}

// Of |r| <= pi / 4.
inline double sin_inside(double r) {
    const double w = r * r;
    double p = 1.0 / 6227020800.0;
    p = p * w - 1.0 / 39916800;
    p = p * w + 1.0 / 362880;
    p = p * w - 1.0 / 5040;
    p = p * w + 1.0 / 120;
    p = p * w - 1.0 / 6;
    return with_sign(r + r * (p * w), r);
}
inline double cos_inside(double r) {
    const double w = r * r;
    double p = -1.0 / 87178291200.0;
    p = p * w + 1.0 / 479001600;
    p = p * w - 1.0 / 3628800;
    p = p * w + 1.0 / 40320;
    p = p * w - 1.0 / 720;
    p = p * w + 1.0 / 24;
    p = p * w - 0.5;
    return 1.0 + p * w;
}

// An angle as quarters of a circle and a rest of at most an eighth.
struct Angle {
    uint64_t quarters;
    double rest;
};
constexpr double kLargeAngle = 1000000.0;
// Of |v| <= kLargeAngle: a quarter in three parts, whose products with the number of quarters are exact.
inline Angle angle_of(double v) {
    const double shifted = v * (2.0 / kPi) + kRound, n = shifted - kRound;
    return {bits_of(shifted), ((v - n * 0x1.921fb544p+0) - n * 0x1.0b4611a6p-34) - n * 0x1.3198a2e037073p-69};
}
// Of any finite float32 above: its product with those bits of 2 / pi that matter, as a fraction of a circle.
inline Angle large_angle_of(float x) {
    constexpr uint32_t kTwoOverPi[] = {0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0,
                                       0xdb629599, 0x3c439041, 0xfe5163ab, 0xdebbc561};
    const uint32_t b = bits_of(x);
    const uint64_t m = (b & 0x7fffff) | 0x800000;
    const int first =
        static_cast<int>((b >> 23) & 0xff) - 150 - 2;  // |x| = m 2^(first + 2); bits before it are circles
    const auto word = [&](int at) {                    // 32 bits from a place on
        const uint64_t high = at < 0 ? 0 : kTwoOverPi[at / 32], low = at < 0 ? kTwoOverPi[0] : kTwoOverPi[at / 32 + 1];
        const int shift = at < 0 ? 32 + at : at % 32;
        return static_cast<uint32_t>((((high << 32) | low) << shift) >> 32);
    };
    const uint64_t high = (static_cast<uint64_t>(word(first)) << 32) | word(first + 32), low = word(first + 64);
    const uint64_t circle = m * high + ((m * low) >> 32);  // of 2^64
    const uint64_t quarters = (circle + (uint64_t{1} << 61)) >> 62;
    const double rest = static_cast<double>(static_cast<int64_t>(circle - (quarters << 62))) * (kHalfPi / 0x1p62);
    return b >> 31 ? Angle{0 - quarters, -rest} : Angle{quarters, rest};
}
inline double sin_of(const Angle& a) {
    const double v = (a.quarters & 1) != 0 ? cos_inside(a.rest) : sin_inside(a.rest);
    return (a.quarters & 2) != 0 ? -v : v;
}
inline double cos_of(const Angle& a) { return sin_of({a.quarters + 1, a.rest}); }
inline double tan_of(const Angle& a) {
    const double s = sin_inside(a.rest), c = cos_inside(a.rest);
    return (a.quarters & 1) != 0 ? -c / s : s / c;
}

// Of v >= 0, infinity included.
inline double atan_inside(double v) {
    const bool turned = v > 1.0;
    const double t = turned ? 1.0 / v : v;
    const bool upper = t > 0.41421356237309503;
    const double r = upper ? (t - 1.0) / (t + 1.0) : t, w = r * r;
    double p = 1.0 / 29;
    p = p * w - 1.0 / 27;
    p = p * w + 1.0 / 25;
    p = p * w - 1.0 / 23;
    p = p * w + 1.0 / 21;
    p = p * w - 1.0 / 19;
    p = p * w + 1.0 / 17;
    p = p * w - 1.0 / 15;
    p = p * w + 1.0 / 13;
    p = p * w - 1.0 / 11;
    p = p * w + 1.0 / 9;
    p = p * w - 1.0 / 7;
    p = p * w + 1.0 / 5;
    p = p * w - 1.0 / 3;
    const double small = r + r * (p * w), part = upper ? kPi / 4 + small : small;
    return turned ? kHalfPi - part : part;
}
inline double atan(double v) { return with_sign(atan_inside(v < 0.0 ? -v : v), v); }
inline double atan2(double y, double x) {
    const double a = with_sign(y, 0.0), b = with_sign(x, 0.0);
    const bool both = a == kInfinity && b == kInfinity, none = a == 0.0 && b == 0.0;
    const double first = atan_inside(both ? 1.0 : none ? 0.0 : a / b);
    const double turned = (bits_of(x) >> 63) != 0 ? kPi - first : first;
    return y != y || x != x ? kNan : with_sign(turned, y);
}
// The squares of float32 neither overflow nor vanish in float64. Infinity wins over NaN.
inline double hypot(double x, double y) {
    const bool infinite = with_sign(x, 0.0) == kInfinity || with_sign(y, 0.0) == kInfinity;
    return infinite ? kInfinity : std::sqrt(x * x + y * y);
}
inline double sinh(double v) {
    const double m = expm1(v < 0.0 ? -v : v);
    return with_sign((m + m / (m + 1.0)) * 0.5, v);
}
inline double cosh(double v) {
    const double e = exp(v < 0.0 ? -v : v);
    return (e + 1.0 / e) * 0.5;
}
inline double tanh(double v) {
    const double m = expm1(v < 0.0 ? v * -2.0 : v * 2.0);
    return with_sign(m / (m + 2.0), v);
}
inline double asinh(double v) {
    const double a = v < 0.0 ? -v : v;
    return a == kInfinity ? v : with_sign(log1p(a + a * (a / (1.0 + std::sqrt(a * a + 1.0)))), v);
}
inline double acosh(double v) {
    const double t = v - 1.0;
    return v < 1.0 ? kNan : log1p(t + std::sqrt(t * (t + 2.0)));
}
inline double atanh(double v) {
    const double a = v < 0.0 ? -v : v;
    return with_sign(0.5 * log1p(2.0 * a / (1.0 - a)), v);
}

// erfc(a) exp(a^2) of a >= 0: t p(t - 0.625), t = 1 / (1 + 0.3 a); within 1e-11 of it for a <= 10.
inline double erfc_scaled(double a) {
    constexpr double kTail[] = {
        0.40863308209856036, 0.8043147611514739,    1.2504657522589782,    1.5179153515253374,    1.3808827016520675,
        0.8394653815545972,  0.19775700518136732,   -0.16661589581756883,  -0.15029045512004677,  0.01389709551806697,
        0.06702201854339855, 0.0049828256229456575, -0.025270579130278022, -0.0028587329259696275};
    const double t = 1.0 / (1.0 + 0.3 * a), u = t - 0.625;
    double p = kTail[13];
    for (int i = 12; i >= 0; --i) p = p * u + kTail[i];
    return t * p;
}
inline double erfc_inside(double a) { return exp(-a * a) * erfc_scaled(a); }
inline double erf(double v) {
    const double a = v < 0.0 ? -v : v, w = a * a;
    double p = -1.0 / (39916800.0 * 23);  // the sum of (-w)^n / (n! (2n + 1)), for a <= 0.5
    p = p * w + 1.0 / (3628800.0 * 21);
    p = p * w - 1.0 / (362880.0 * 19);
    p = p * w + 1.0 / (40320.0 * 17);
    p = p * w - 1.0 / (5040.0 * 15);
    p = p * w + 1.0 / (720.0 * 13);
    p = p * w - 1.0 / (120.0 * 11);
    p = p * w + 1.0 / (24.0 * 9);
    p = p * w - 1.0 / (6.0 * 7);
    p = p * w + 1.0 / (2.0 * 5);
    p = p * w - 1.0 / 3;
    const double small = 1.12837916709551257390 * (a + a * (p * w));
    return with_sign(a < 0.5 ? small : 1.0 - erfc_inside(a > 10.5 ? 10.5 : a), v);
}
inline double erfc(double v) {
    const double a = v < 0.0 ? -v : v, tail = erfc_inside(a > 10.5 ? 10.5 : a);
    return v < 0.0 ? 2.0 - tail : tail;
}

// x^y as C has it: of a negative x for whole numbers y only.
inline double pow(double x, double y) {
    const double a = x < 0.0 ? -x : x;
    const double size = exp(y * log(a));
    const double whole = std::floor(y);
    const bool is_whole = whole == y, is_odd = is_whole && std::floor(y * 0.5) != y * 0.5;
    const bool negative = (bits_of(x) >> 63) != 0;
    const double signed_size = negative && is_odd ? -size : size;
    const double inside = x < 0.0 && x != -kInfinity && !is_whole ? kNan : signed_size;
    if (y == 0.0 || x == 1.0) return 1.0;
    if (a == 1.0 && (y == kInfinity || y == -kInfinity)) return 1.0;
    if (a == 0.0) return y < 0.0 ? (negative && is_odd ? -kInfinity : kInfinity) : y > 0.0 ? (is_odd ? x : 0.0) : y;
    return inside;
}

}  // namespace exact

}  // namespace
}  // namespace zeropoint
