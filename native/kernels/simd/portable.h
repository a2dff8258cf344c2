// Vectors without intrinsics: eight lanes in an array, for any compiler and CPU; what every other ISA must agree with.
// A build for WebAssembly needs its vectors as a whole, so they are what is portable there.
#pragma once

#if defined(__wasm__)
#include "kernels/simd/simd128.h"

namespace zeropoint {
namespace {
using Portable = Simd128;
}
}  // namespace zeropoint
#else

#include "kernels/simd/fused.h"
#include "kernels/half.h"

#include <cstdint>
#include <cstring>

namespace zeropoint {
namespace {

struct Portable {
    static constexpr int W = 8;  // float lanes
    struct F {
        float v[W];
    };
    struct I {
        int32_t v[W];
    };
    struct M {
        bool v[W];
    };
    struct D {
        double v[W / 2];
    };

    template <class A, class T, class Fn>
    static A each(Fn fn) {
        A r;
        for (int i = 0; i < static_cast<int>(sizeof(A) / sizeof(T)); ++i) r.v[i] = fn(i);
        return r;
    }

    static F set(float x) {
        return each<F, float>([&](int) { return x; });
    }
    static D set(double x) {
        return each<D, double>([&](int) { return x; });
    }
    static F load(const float* p) {
        F r;
        std::memcpy(&r, p, sizeof r);
        return r;
    }
    static void store(float* p, F a) { std::memcpy(p, &a, sizeof a); }
    static D load(const double* p) {
        D r;
        std::memcpy(&r, p, sizeof r);
        return r;
    }

    static F add(F a, F b) {
        return each<F, float>([&](int i) { return a.v[i] + b.v[i]; });
    }
    static F sub(F a, F b) {
        return each<F, float>([&](int i) { return a.v[i] - b.v[i]; });
    }
    static F mul(F a, F b) {
        return each<F, float>([&](int i) { return a.v[i] * b.v[i]; });
    }
    static F div(F a, F b) {
        return each<F, float>([&](int i) { return a.v[i] / b.v[i]; });
    }
    static F fma(F a, F b, F c) {
        return each<F, float>([&](int i) { return zeropoint::fused(a.v[i], b.v[i], c.v[i]); });
    }
    static D add(D a, D b) {
        return each<D, double>([&](int i) { return a.v[i] + b.v[i]; });
    }
    static D sub(D a, D b) {
        return each<D, double>([&](int i) { return a.v[i] - b.v[i]; });
    }
    static D mul(D a, D b) {
        return each<D, double>([&](int i) { return a.v[i] * b.v[i]; });
    }

    // rne without a library call: adding 2^23 leaves no room for a fraction, so the addition itself rounds.
    static float rne(float x) {
        const float a = __builtin_fabsf(x);
        const float r = (a + 8388608.0f) - 8388608.0f;
        return a < 8388608.0f ? __builtin_copysignf(r, x) : x;
    }
    static double rne(double x) {
        const double a = __builtin_fabs(x);
        const double r = (a + 4503599627370496.0) - 4503599627370496.0;
        return a < 4503599627370496.0 ? __builtin_copysign(r, x) : x;
    }
    static F round(F a) {
        return each<F, float>([&](int i) { return rne(a.v[i]); });
    }
    static D round(D a) {
        return each<D, double>([&](int i) { return rne(a.v[i]); });
    }

    // clamp keeps NaN; clamp_nan_high sends NaN to `hi`.
    static F clamp(F a, F lo, F hi) {
        return each<F, float>([&](int i) {
            const float t = a.v[i] > hi.v[i] ? hi.v[i] : a.v[i];
            return t < lo.v[i] ? lo.v[i] : t;
        });
    }
    static D clamp(D a, D lo, D hi) {
        return each<D, double>([&](int i) {
            const double t = a.v[i] > hi.v[i] ? hi.v[i] : a.v[i];
            return t < lo.v[i] ? lo.v[i] : t;
        });
    }
    static F clamp_nan_high(F a, F lo, F hi) {
        return each<F, float>([&](int i) {
            const float t = a.v[i] < hi.v[i] ? a.v[i] : hi.v[i];
            return t < lo.v[i] ? lo.v[i] : t;
        });
    }
    static F min(F a, F b) {
        return each<F, float>([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
    }
    static F max(F a, F b) {
        return each<F, float>([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
    }

    static M less(F a, F b) {
        return each<M, bool>([&](int i) { return a.v[i] < b.v[i]; });
    }
    static M inside(F a, F lo, F hi) {
        return each<M, bool>([&](int i) { return a.v[i] >= lo.v[i] && a.v[i] <= hi.v[i]; });
    }
    static M is_nan(F a) {
        return each<M, bool>([&](int i) { return a.v[i] != a.v[i]; });
    }
    static M either(M a, M b) {
        return each<M, bool>([&](int i) { return a.v[i] || b.v[i]; });
    }
    static M none() {
        return each<M, bool>([](int) { return false; });
    }
    static bool any(M a) {
        bool r = false;
        for (bool b : a.v) r = r || b;
        return r;
    }
    static bool all(M a) {
        bool r = true;
        for (bool b : a.v) r = r && b;
        return r;
    }
    static F select(M m, F yes, F no) {
        return each<F, float>([&](int i) { return m.v[i] ? yes.v[i] : no.v[i]; });
    }
    static I ones(M m) {
        return each<I, int32_t>([&](int i) { return m.v[i] ? 1 : 0; });
    }

    // Truncation; out of range and NaN give INT_MIN, as the x86 instruction does.
    static int32_t truncate(double x) {
        return x > -2147483649.0 && x < 2147483648.0 ? static_cast<int32_t>(x) : INT32_MIN;
    }
    static I to_int(F a) {
        return each<I, int32_t>([&](int i) { return truncate(static_cast<double>(a.v[i])); });
    }
    static I to_int(D a, D b) {
        return each<I, int32_t>([&](int i) { return truncate(i < W / 2 ? a.v[i] : b.v[i - W / 2]); });
    }
    // INT_MIN becomes INT_MAX where m is set.
    static I flip_min(I a, M m) {
        return each<I, int32_t>([&](int i) { return m.v[i] ? ~a.v[i] : a.v[i]; });
    }
    static M at_least(F a, F b) {
        return each<M, bool>([&](int i) { return a.v[i] >= b.v[i]; });
    }
    static F to_float(I a) {
        return each<F, float>([&](int i) { return static_cast<float>(a.v[i]); });
    }
    static F to_float(D a, D b) {
        return each<F, float>([&](int i) { return static_cast<float>(i < W / 2 ? a.v[i] : b.v[i - W / 2]); });
    }
    static D low(F a) {
        return each<D, double>([&](int i) { return static_cast<double>(a.v[i]); });
    }
    static D high(F a) {
        return each<D, double>([&](int i) { return static_cast<double>(a.v[i + W / 2]); });
    }
    static D low(I a) {
        return each<D, double>([&](int i) { return static_cast<double>(a.v[i]); });
    }
    static D high(I a) {
        return each<D, double>([&](int i) { return static_cast<double>(a.v[i + W / 2]); });
    }

    template <class T>
    static I load_int(const T* p) {
        return each<I, int32_t>([&](int i) { return static_cast<int32_t>(p[i]); });
    }
    // W values of kBits bits (8, 4 or 2), low bits first, from W * kBits / 8 bytes; two more may be read.
    template <int kBits>
    static I load_bits(const uint8_t* p) {
        return each<I, int32_t>([&](int i) { return p[i * kBits / 8] >> (i * kBits % 8) & ((1 << kBits) - 1); });
    }
    // Exact.
    template <int kBits>
    static F load_bit_floats(const uint8_t* p) {
        return to_float(load_bits<kBits>(p));
    }
    static float from_half(uint16_t half) { return zeropoint::from_half(half); }
    static I set_int(int32_t x) {
        return each<I, int32_t>([&](int) { return x; });
    }
    static I sub(I a, I b) {
        return each<I, int32_t>([&](int i) { return a.v[i] - b.v[i]; });
    }
    // The nearest integer, ties to even; out of range as to_int.
    static I round_to_int(F a) { return to_int(round(a)); }
    // Wraps.
    static I add(I a, I b) {
        return each<I, int32_t>([&](int i) {
            const uint32_t sum = static_cast<uint32_t>(a.v[i]) + static_cast<uint32_t>(b.v[i]);
            int32_t r;
            std::memcpy(&r, &sum, sizeof r);
            return r;
        });
    }
    // To each lane the products of two int16, the halves of `pair`, with two of w. Wraps.
    static I add_pairs(I sum, int32_t pair, const int16_t* w) {
        int16_t x[2];
        std::memcpy(x, &pair, sizeof x);
        return each<I, int32_t>([&](int i) {
            return static_cast<int32_t>(static_cast<uint32_t>(sum.v[i]) + static_cast<uint32_t>(x[0] * w[2 * i]) +
                                        static_cast<uint32_t>(x[1] * w[2 * i + 1]));
        });
    }
    // 2^n for n in -126 .. 127; for other n no number in particular.
    static F power_of_two(I n) {
        return each<F, float>([&](int i) {
            const uint32_t bits = (static_cast<uint32_t>(n.v[i]) + 127u) << 23;
            float r;
            std::memcpy(&r, &bits, sizeof r);
            return r;
        });
    }
    static F load_half(const uint16_t* p) {
        return each<F, float>([&](int i) { return from_half(p[i]); });
    }
    static void store_int(int32_t* p, I a) { std::memcpy(p, &a, sizeof a); }
    // Keeps the low bits of each lane.
    template <class T>
    static void store4(T* p, I a, I b, I c, I d) {
        const I parts[4] = {a, b, c, d};
        for (int k = 0; k < 4; ++k)
            for (int i = 0; i < W; ++i) p[k * W + i] = static_cast<T>(parts[k].v[i]);
    }
    // Values outside an 8-bit type become its smallest or largest.
    template <class T>
    static void store4_saturated(T* p, I a, I b, I c, I d) {
        constexpr int32_t kLow = T(-1) < T(0) ? -128 : 0, kHigh = kLow + 255;
        const I parts[4] = {a, b, c, d};
        for (int k = 0; k < 4; ++k)
            for (int i = 0; i < W; ++i) {
                const int32_t x = parts[k].v[i];
                p[k * W + i] = static_cast<T>(x < kLow ? kLow : x > kHigh ? kHigh : x);
            }
    }
    // clamp(x + offset) to the range of an 8-bit type, and no less than `low`; |offset| is at most 255.
    template <class T>
    static void store4_offset(T* p, I a, I b, I c, I d, int32_t offset, T low) {
        constexpr int32_t kLow = T(-1) < T(0) ? -128 : 0, kHigh = kLow + 255;
        const I parts[4] = {a, b, c, d};
        for (int k = 0; k < 4; ++k)
            for (int i = 0; i < W; ++i) {
                const int32_t x = parts[k].v[i];
                const int32_t y = (x < -32768 ? -32768 : x > 32767 ? 32767 : x) + offset;
                const T z = static_cast<T>(y < kLow ? kLow : y > kHigh ? kHigh : y);
                p[k * W + i] = z < low ? low : z;
            }
    }
    // The low bytes of max(rne(v) + offset, lo) for 16 lanes of v < 2^31; |offset| and |lo| are at most 255. rne(v) may
    // saturate at -2^15, far below every lo.
    static void store16(uint8_t* p, const F* v, int32_t offset, int32_t lo) {
        for (int i = 0; i < 16; ++i) {
            const float x = v[i / W].v[i % W];
            const int32_t q = truncate(static_cast<double>(rne(x < -32768.0f ? -32768.0f : x))) + offset;
            p[i] = static_cast<uint8_t>(q < lo ? lo : q);
        }
    }
    // clamp(rne(v) + offset, lo, hi) for v < 2^31, where |offset| is at most 255 and lo and hi lie in the 8-bit type.
    template <class T>
    static void store4_clamped(T* p, F a, F b, F c, F d, int32_t offset, int32_t lo, int32_t hi) {
        const F parts[4] = {a, b, c, d};
        for (int k = 0; k < 4; ++k)
            for (int i = 0; i < W; ++i) {
                const float x = parts[k].v[i];
                const int32_t q = x < -32768.0f  ? -32768
                                  : x > 32767.0f ? 32767
                                                 : truncate(static_cast<double>(rne(x))) + offset;
                p[k * W + i] = static_cast<T>(q < lo ? lo : q > hi ? hi : q);
            }
    }
    // The same in the whole range of the type.
    template <class T>
    static void store4_offset(T* p, F a, F b, F c, F d, int32_t offset) {
        constexpr int32_t kLow = T(-1) < T(0) ? -128 : 0;
        store4_clamped(p, a, b, c, d, offset, kLow, kLow + 255);
    }
    // Adds 4 * W bytes x ^ flip, or their squares, to the lanes of a sum, in whatever order.
    static I add_bytes(I sum, const uint8_t* p, uint8_t flip) {
        return each<I, int32_t>([&](int i) {
            int32_t lane = sum.v[i];
            for (int k = 0; k < 4; ++k) lane += p[k * W + i] ^ flip;
            return lane;
        });
    }
    static I add_squares(I sum, const uint8_t* p, uint8_t flip) {
        return each<I, int32_t>([&](int i) {
            int32_t lane = sum.v[i];
            for (int k = 0; k < 4; ++k) lane += (p[k * W + i] ^ flip) * (p[k * W + i] ^ flip);
            return lane;
        });
    }
    static int32_t reduce_add(I a) {
        int32_t sum = 0;
        for (int32_t lane : a.v) sum += lane;
        return sum;
    }
    // Lane k gets lane k + W / 2, then k + W / 4, ... k + 1; lane 0 is the sum.
    static float reduce_add(F a) {
        for (int half = W / 2; half > 0; half /= 2)
            for (int k = 0; k < half; ++k) a.v[k] += a.v[k + half];
        return a.v[0];
    }
    static float reduce_min(F a) {
        float r = a.v[0];
        for (float x : a.v) r = x < r ? x : r;
        return r;
    }
    static float reduce_max(F a) {
        float r = a.v[0];
        for (float x : a.v) r = x > r ? x : r;
        return r;
    }
};

}  // namespace
}  // namespace zeropoint

#endif
