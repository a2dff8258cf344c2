// The loops of map. Every instruction set compiles them; only the reference keeps its compiler from making vectors.
#pragma once

#include "kernels/map/special_functions.h"
#include "kernels/map/map.h"

#include <type_traits>

namespace zeropoint {
namespace {

struct Bool {
    uint8_t byte;
};

// ---------------------------------------------------------------------------------------------- formulas, by name

template <class T>
constexpr bool kIsFloat = std::is_same_v<T, float>;

// Integers are added and multiplied without signs, where wrapping is defined, and with at least 32 bits.
template <class T>
using Wrapping = std::conditional_t<(sizeof(T) < 8), uint32_t, uint64_t>;

#define UNARY(name)                                                                                                    \
    struct name##_ {                                                                                                   \
        template <class T>                                                                                             \
        static T of(T a)
#define BINARY(name)                                                                                                   \
    struct name##_ {                                                                                                   \
        template <class T>                                                                                             \
        static T of(T a, T b)
#define COMPARISON(name, sign)                                                                                         \
    struct name##_ {                                                                                                   \
        template <class T>                                                                                             \
        static bool of(T a, T b) {                                                                                     \
            return a sign b;                                                                                           \
        }                                                                                                              \
    };
#define ARITHMETIC(name, sign)                                                                                         \
    BINARY(name) {                                                                                                     \
        if constexpr (kIsFloat<T>)                                                                                     \
            return a sign b;                                                                                           \
        else                                                                                                           \
            return static_cast<T>(static_cast<Wrapping<T>>(a) sign static_cast<Wrapping<T>>(b));                       \
    }                                                                                                                  \
    }                                                                                                                  \
    ;
#define FUNCTION(name)                                                                                                 \
    struct name##_ {                                                                                                   \
        static float of(float a) { return static_cast<float>(exact::name(static_cast<double>(a))); }                   \
    };
#define FUNCTION_OF_TWO(name)                                                                                          \
    struct name##_ {                                                                                                   \
        static float of(float a, float b) { return static_cast<float>(exact::name(a, b)); }                            \
    };
// Of an angle: angles that are too large for the loop are done one by one behind it.
#define CIRCULAR(name)                                                                                                 \
    struct name##_ {                                                                                                   \
        static float of(float a) { return static_cast<float>(exact::name##_of(exact::angle_of(a))); }                  \
        static float large(float a) {                                                                                  \
            return a - a != 0.0f ? a - a : static_cast<float>(exact::name##_of(exact::large_angle_of(a)));             \
        }                                                                                                              \
    };

ARITHMETIC(add, +)
ARITHMETIC(sub, -)
ARITHMETIC(mul, *)
COMPARISON(eq, ==)
COMPARISON(ne, !=)
COMPARISON(lt, <)
COMPARISON(le, <=)
COMPARISON(gt, >)
COMPARISON(ge, >=)
FUNCTION(exp)
FUNCTION(expm1)
FUNCTION(log)
FUNCTION(log1p)
FUNCTION(atan)
FUNCTION(sinh)
FUNCTION(cosh)
FUNCTION(asinh)
FUNCTION(acosh)
FUNCTION(atanh)
FUNCTION(erf)
FUNCTION(erfc)
FUNCTION(lgamma)
FUNCTION(digamma)
FUNCTION(erfinv)
FUNCTION(ndtri)
FUNCTION(log_ndtr)
FUNCTION(erfcx)
FUNCTION(i0)
FUNCTION(i0e)
FUNCTION(i1)
FUNCTION(i1e)
FUNCTION(modified_bessel_k0)
FUNCTION(modified_bessel_k1)
FUNCTION(scaled_modified_bessel_k0)
FUNCTION(scaled_modified_bessel_k1)
FUNCTION(bessel_j0)
FUNCTION(bessel_j1)
FUNCTION(bessel_y0)
FUNCTION(bessel_y1)
FUNCTION(spherical_bessel_j0)
FUNCTION(airy_ai)
FUNCTION_OF_TWO(atan2)
FUNCTION_OF_TWO(hypot)
FUNCTION_OF_TWO(zeta)
FUNCTION_OF_TWO(polygamma)
FUNCTION_OF_TWO(igamma)
FUNCTION_OF_TWO(igammac)
FUNCTION_OF_TWO(chebyshev_polynomial_t)
FUNCTION_OF_TWO(chebyshev_polynomial_u)
FUNCTION_OF_TWO(chebyshev_polynomial_v)
FUNCTION_OF_TWO(chebyshev_polynomial_w)
FUNCTION_OF_TWO(shifted_chebyshev_polynomial_t)
FUNCTION_OF_TWO(shifted_chebyshev_polynomial_u)
FUNCTION_OF_TWO(shifted_chebyshev_polynomial_v)
FUNCTION_OF_TWO(shifted_chebyshev_polynomial_w)
FUNCTION_OF_TWO(hermite_polynomial_h)
FUNCTION_OF_TWO(hermite_polynomial_he)
FUNCTION_OF_TWO(laguerre_polynomial_l)
FUNCTION_OF_TWO(legendre_polynomial_p)
CIRCULAR(sin)
CIRCULAR(cos)
CIRCULAR(tan)

UNARY(neg) {
    if constexpr (kIsFloat<T>)
        return -a;
    else
        return static_cast<T>(Wrapping<T>{0} - static_cast<Wrapping<T>>(a));
}
};
UNARY(abs) {
    if constexpr (kIsFloat<T>)
        return __builtin_fabsf(a);
    else
        return a < T{0} ? neg_::of(a) : a;
}
};
UNARY(sign) { return static_cast<T>(static_cast<T>(a > T{0}) - static_cast<T>(a < T{0})); }
}
;
UNARY(bitwise_not) { return static_cast<T>(~a); }
}
;
struct floor_ {
    static float of(float a) { return __builtin_floorf(a); }
};
struct ceil_ {
    static float of(float a) { return __builtin_ceilf(a); }
};
struct trunc_ {
    static float of(float a) { return __builtin_truncf(a); }
};
struct round_ {
    static float of(float a) { return __builtin_rintf(a); }
};
struct sqrt_ {
    static float of(float a) { return __builtin_sqrtf(a); }
};
struct rsqrt_ {
    static float of(float a) { return 1.0f / __builtin_sqrtf(a); }
};
struct reciprocal_ {
    static float of(float a) { return 1.0f / a; }
};
struct exp2_ {
    static float of(float a) {
        return static_cast<float>(exact::exp(static_cast<double>(a) * 0.693147180559945309417));
    }
};
struct log2_ {
    static float of(float a) { return static_cast<float>(exact::log(a) * exact::kLog2e); }
};
struct log10_ {
    static float of(float a) { return static_cast<float>(exact::log(a) * exact::kLog10e); }
};
struct asin_ {
    static float of(float a) {
        const double v = a;
        return static_cast<float>(exact::atan(v / __builtin_sqrt((1.0 - v) * (1.0 + v))));
    }
};
struct acos_ {
    static float of(float a) {
        const double v = a;
        return static_cast<float>(2.0 * exact::atan_inside(__builtin_sqrt((1.0 - v) / (1.0 + v))));
    }
};
struct isnan_ {
    static bool of(float a) { return a != a; }
};
struct isinf_ {
    static bool of(float a) { return __builtin_fabsf(a) == std::numeric_limits<float>::infinity(); }
};
struct div_ {
    static float of(float a, float b) { return a / b; }
};
// A float as mantissa * 2^exponent, the first of which is at least a half and less than one.
struct mantissa_ {
    static float of(float a) {
        if (a == 0.0f || a - a != 0.0f) return a;
        const float normal = __builtin_fabsf(a) < std::numeric_limits<float>::min() ? a * 0x1p24f : a;
        return from_bits((bits_of(normal) & 0x807fffff) | 0x3f000000);
    }
};
struct exponent_ {
    static float of(float a) {
        if (a == 0.0f || a - a != 0.0f) return 0.0f;
        const bool small = __builtin_fabsf(a) < std::numeric_limits<float>::min();
        const int biased = static_cast<int>((bits_of(small ? a * 0x1p24f : a) >> 23) & 0xff);
        return static_cast<float>(biased - 126 - (small ? 24 : 0));
    }
};
struct copysign_ {
    static float of(float a, float b) { return __builtin_copysignf(a, b); }
};
// The float beside a in the direction of b.
struct nextafter_ {
    static float of(float a, float b) {
        if (a != a || b != b) return a + b;
        if (a == b) return b;
        if (a == 0.0f) return __builtin_copysignf(std::numeric_limits<float>::denorm_min(), b);
        return from_bits(bits_of(a) + ((b > a) == (a > 0.0f) ? 1u : ~0u));
    }
};
BINARY(minimum) { return b < a || b != b ? b : a; }
}
;
BINARY(maximum) { return a < b || b != b ? b : a; }
}
;
BINARY(bitwise_and) { return static_cast<T>(a & b); }
}
;
BINARY(bitwise_or) { return static_cast<T>(a | b); }
}
;
BINARY(bitwise_xor) { return static_cast<T>(a ^ b); }
}
;
// Shifts by more than there are bits, or by less than none, leave nothing but the sign.
BINARY(shift_left) {
    constexpr int kBits = sizeof(T) * 8;
    return b < T{0} || b >= T{kBits - 1} + T{1} ? T{0} : static_cast<T>(static_cast<Wrapping<T>>(a) << b);
}
}
;
BINARY(shift_right) {
    constexpr T kLast = sizeof(T) * 8 - 1;
    const bool outside = b < T{0} || b > kLast;
    if constexpr (std::is_signed_v<T>)
        return static_cast<T>(a >> (outside ? kLast : b));
    else
        return outside ? T{0} : static_cast<T>(a >> b);
}
}
;

// Exact, as C's; without a library, which is one result everywhere anyway.
inline float float_fmod(float a, float b) { return std::fmod(a, b); }

// Divisions of integers: nothing by zero, and the least by -1 wraps.
template <class T>
T quotient(T a, T b) {
    if constexpr (std::is_signed_v<T>)
        if (b == T{-1}) return neg_::of(a);
    return b == T{0} ? T{0} : static_cast<T>(a / b);
}
template <class T>
T rest(T a, T b) {
    if constexpr (std::is_signed_v<T>)
        if (b == T{-1}) return T{0};
    return b == T{0} ? T{0} : static_cast<T>(a % b);
}
BINARY(gcd) {
    using U = std::make_unsigned_t<T>;
    const auto size = [](T v) { return static_cast<U>(v < T{0} ? U{0} - static_cast<U>(v) : static_cast<U>(v)); };
    U x = size(a), y = size(b);
    while (y != 0) {
        const U left = static_cast<U>(x % y);
        x = y;
        y = left;
    }
    return static_cast<T>(x);
}
}
;
BINARY(lcm) {
    const T shared = gcd_::of(a, b);
    return shared == T{0} ? T{0} : abs_::of(mul_::of(quotient(a, shared), b));
}
}
;
BINARY(fmod) {
    if constexpr (kIsFloat<T>)
        return float_fmod(a, b);
    else
        return rest(a, b);
}
}
;
BINARY(remainder) {
    const T left = fmod_::of(a, b);
    return left != T{0} && (b < T{0}) != (left < T{0}) ? static_cast<T>(left + b) : left;
}
}
;
BINARY(trunc_divide) {
    if constexpr (kIsFloat<T>)
        return __builtin_truncf(a / b);
    else
        return quotient(a, b);
}
}
;
// Of floats: what is left over is taken away first, so that a quotient just below a whole number is not rounded up.
BINARY(floor_divide) {
    if constexpr (kIsFloat<T>) {
        if (b == 0.0f) return a / b;
        const float left = float_fmod(a, b);
        float q = (a - left) / b;
        if (left != 0.0f && (b < 0.0f) != (left < 0.0f)) q -= 1.0f;
        if (q == 0.0f) return __builtin_copysignf(0.0f, a / b);
        const float down = __builtin_floorf(q);
        return q - down > 0.5f ? down + 1.0f : down;
    } else {
        const T q = quotient(a, b);
        return b != T{0} && rest(a, b) != T{0} && (a < T{0}) != (b < T{0}) ? static_cast<T>(q - T{1}) : q;
    }
}
}
;
// Integers by squaring; with a negative exponent what is left of 1 / a^-b.
BINARY(pow) {
    if constexpr (kIsFloat<T>) {
        return static_cast<float>(exact::pow(a, b));
    } else {
        if (b < T{0}) return a == T{1} ? T{1} : a == static_cast<T>(-1) ? (b % 2 == 0 ? T{1} : a) : T{0};
        Wrapping<T> power = 1, square = static_cast<Wrapping<T>>(a);
        for (auto left = static_cast<uint64_t>(b); left != 0; left >>= 1, square *= square)
            if ((left & 1) != 0) power *= square;
        return static_cast<T>(power);
    }
}
}
;

#undef UNARY
#undef BINARY
#undef COMPARISON
#undef ARITHMETIC
#undef FUNCTION
#undef FUNCTION_OF_TWO
#undef CIRCULAR

// ------------------------------------------------------------------------------------------------------------ loops

// How an element lies in memory and what formulas see.
template <class T>
struct Element {
    using Stored = T;
    static T read(T v) { return v; }
    static T written(T v) { return v; }
};
template <>
struct Element<bool> {
    using Stored = uint8_t;
    static uint8_t read(uint8_t v) { return v; }
    static uint8_t written(uint8_t v) { return v & 1; }
};

template <class T>
using StoredOf = typename Element<T>::Stored;

template <class Formula, class T>
constexpr bool kDivides =
    !kIsFloat<T> && (std::is_same_v<Formula, floor_divide_> || std::is_same_v<Formula, fmod_> ||
                     std::is_same_v<Formula, remainder_> || std::is_same_v<Formula, trunc_divide_>);

template <class Formula, class = void>
constexpr bool kHasLarge = false;
template <class Formula>
constexpr bool kHasLarge<Formula, decltype(void(Formula::large(0.0f)))> = true;

template <class Formula, class T, class R>
bool unary_loop(const void* a, const void*, const void*, void* y, int64_t n) {
    const StoredOf<T>* from = static_cast<const StoredOf<T>*>(a);
    StoredOf<R>* to = static_cast<StoredOf<R>*>(y);
    if constexpr (kHasLarge<Formula>) {
        int64_t large = 0;
        for (int64_t i = 0; i < n; ++i) large += !(__builtin_fabsf(from[i]) <= static_cast<float>(exact::kLargeAngle));
        if (large > 0) {
            for (int64_t i = 0; i < n; ++i)
                to[i] = __builtin_fabsf(from[i]) <= static_cast<float>(exact::kLargeAngle) ? Formula::of(from[i])
                                                                                           : Formula::large(from[i]);
            return true;
        }
    }
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) to[i] = Element<R>::written(static_cast<StoredOf<R>>(Formula::of(from[i])));
    return true;
}

template <class Formula, class T, class R>
bool binary_loop(const void* a, const void* b, const void*, void* y, int64_t n) {
    const StoredOf<T>*left = static_cast<const StoredOf<T>*>(a), *right = static_cast<const StoredOf<T>*>(b);
    StoredOf<R>* to = static_cast<StoredOf<R>*>(y);
    bool fine = true;
    if constexpr (kDivides<Formula, T>)
        for (int64_t i = 0; i < n; ++i) fine = fine && right[i] != 0;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i)
        to[i] = Element<R>::written(static_cast<StoredOf<R>>(Formula::of(left[i], right[i])));
    return fine;
}

template <class T>
bool where_loop(const void* a, const void* b, const void* c, void* y, int64_t n) {
    const uint8_t* chosen = static_cast<const uint8_t*>(a);
    const StoredOf<T>*left = static_cast<const StoredOf<T>*>(b), *right = static_cast<const StoredOf<T>*>(c);
    StoredOf<T>* to = static_cast<StoredOf<T>*>(y);
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) to[i] = chosen[i] != 0 ? left[i] : right[i];
    return true;
}

template <class From, class To>
bool convert_loop(const void* a, const void*, const void*, void* y, int64_t n) {
    const StoredOf<From>* from = static_cast<const StoredOf<From>*>(a);
    StoredOf<To>* to = static_cast<StoredOf<To>*>(y);
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) {
        const StoredOf<From> v = from[i];
        if constexpr (std::is_same_v<To, bool>) {
            to[i] = v != StoredOf<From>{};
        } else if constexpr (kIsFloat<From> && !kIsFloat<To>) {
            // Through int32 or int64, as x86 converts: what does not fit is its least number.
            using Wide = std::conditional_t<sizeof(To) == 8, int64_t, int32_t>;
            constexpr float kEnd = -static_cast<float>(std::numeric_limits<Wide>::min());
            const Wide wide = v >= -kEnd && v < kEnd ? static_cast<Wide>(v) : std::numeric_limits<Wide>::min();
            to[i] = static_cast<To>(wide);
        } else {
            to[i] = static_cast<StoredOf<To>>(v);
        }
    }
    return true;
}

// ------------------------------------------------------------------------------------------------------------ tables

enum Types : int { B = 1, I = 2, F = 4, N = I | F, IB = I | B, A = N | B };
enum class Result { same, boolean };

template <class T>
constexpr int kKind = kIsFloat<T>               ? F
                      : std::is_same_v<T, bool> ? B
                                                : I;

template <class Formula, int kOperands, Result kResult, class T>
MapLoop loop_of() {
    using R = std::conditional_t<kResult == Result::same, T, bool>;
    if constexpr (kOperands == 1)
        return unary_loop<Formula, T, R>;
    else if constexpr (kOperands == 2)
        return binary_loop<Formula, T, R>;
    else
        return where_loop<T>;
}

template <class Formula, int kOperands, int kTypes, Result kResult>
MapLoop typed(MapType type) {
    const auto of = [](auto zero) -> MapLoop {
        using T = decltype(zero);
        if constexpr ((kTypes & kKind<T>) != 0)
            return loop_of<Formula, kOperands, kResult, T>();
        else
            return nullptr;
    };
    switch (type) {
        case MapType::boolean: return of(bool{});
        case MapType::u8: return of(uint8_t{});
        case MapType::s8: return of(int8_t{});
        case MapType::s32: return of(int32_t{});
        case MapType::s64: return of(int64_t{});
        case MapType::f32: return of(float{});
    }
    return nullptr;
}

struct where_ {};

inline MapLoop operation_of(MapOperation operation, MapType type) {
    switch (operation) {
#define OPERATION(name, operands, types, result)                                                                       \
    case MapOperation::name: return typed<name##_, operands, types, Result::result>(type);
#include "kernels/map/operations.inc"
#undef OPERATION
    }
    return nullptr;
}

template <class From>
MapLoop conversion_from(MapType to) {
    switch (to) {
        case MapType::boolean: return convert_loop<From, bool>;
        case MapType::u8: return convert_loop<From, uint8_t>;
        case MapType::s8: return convert_loop<From, int8_t>;
        case MapType::s32: return convert_loop<From, int32_t>;
        case MapType::s64: return convert_loop<From, int64_t>;
        case MapType::f32: return convert_loop<From, float>;
    }
    return nullptr;
}

inline MapLoop conversion_of(MapType from, MapType to) {
    switch (from) {
        case MapType::boolean: return conversion_from<bool>(to);
        case MapType::u8: return conversion_from<uint8_t>(to);
        case MapType::s8: return conversion_from<int8_t>(to);
        case MapType::s32: return conversion_from<int32_t>(to);
        case MapType::s64: return conversion_from<int64_t>(to);
        case MapType::f32: return conversion_from<float>(to);
    }
    return nullptr;
}

}  // namespace
}  // namespace zeropoint
