// Vectors of eight floats as two registers of WebAssembly, so that lanes are those of simd/portable.h, which says what
// each function promises and is this type there.
#pragma once

#include "kernels/simd/fused.h"
#include "kernels/half.h"

#include <cstdint>
#include <cstring>
#include <wasm_simd128.h>

namespace zeropoint {
namespace {

struct Simd128 {
    static constexpr int W = 8;
    struct F {
        v128_t low, high;
    };
    struct D {
        v128_t low, high;
    };
    struct I {
        v128_t low, high;
    };
    struct M {
        v128_t low, high;
    };

    static F set(float x) { return {wasm_f32x4_splat(x), wasm_f32x4_splat(x)}; }
    static D set(double x) { return {wasm_f64x2_splat(x), wasm_f64x2_splat(x)}; }
    static F load(const float* p) { return {wasm_v128_load(p), wasm_v128_load(p + 4)}; }
    static void store(float* p, F a) {
        wasm_v128_store(p, a.low);
        wasm_v128_store(p + 4, a.high);
    }
    static D load(const double* p) { return {wasm_v128_load(p), wasm_v128_load(p + 2)}; }

    static F add(F a, F b) { return {wasm_f32x4_add(a.low, b.low), wasm_f32x4_add(a.high, b.high)}; }
    static F sub(F a, F b) { return {wasm_f32x4_sub(a.low, b.low), wasm_f32x4_sub(a.high, b.high)}; }
    static F mul(F a, F b) { return {wasm_f32x4_mul(a.low, b.low), wasm_f32x4_mul(a.high, b.high)}; }
    static F div(F a, F b) { return {wasm_f32x4_div(a.low, b.low), wasm_f32x4_div(a.high, b.high)}; }
    static D add(D a, D b) { return {wasm_f64x2_add(a.low, b.low), wasm_f64x2_add(a.high, b.high)}; }
    static D sub(D a, D b) { return {wasm_f64x2_sub(a.low, b.low), wasm_f64x2_sub(a.high, b.high)}; }
    static D mul(D a, D b) { return {wasm_f64x2_mul(a.low, b.low), wasm_f64x2_mul(a.high, b.high)}; }

    // a * b + c of two lanes, rounded to the odd one of two neighbours where it is not exact: see kernels/fused.h.
    static v128_t odd_sum(v128_t a, v128_t b, v128_t c) {
        const v128_t product = wasm_f64x2_mul(a, b), sum = wasm_f64x2_add(product, c);
        const v128_t rest = wasm_f64x2_sub(sum, product);
        const v128_t error =
            wasm_f64x2_add(wasm_f64x2_sub(product, wasm_f64x2_sub(sum, rest)), wasm_f64x2_sub(c, rest));
        const v128_t zero = wasm_f64x2_const_splat(0), one = wasm_i64x2_const_splat(1);
        const v128_t above = wasm_f64x2_gt(error, zero);
        const v128_t inexact = wasm_v128_or(above, wasm_f64x2_lt(error, zero));
        const v128_t inward = wasm_v128_xor(above, wasm_f64x2_gt(sum, zero));  // -1: towards zero
        const v128_t step = wasm_v128_or(inward, one);
        const v128_t is_even = wasm_i64x2_eq(wasm_v128_and(sum, one), wasm_i64x2_const_splat(0));
        return wasm_i64x2_add(sum, wasm_v128_and(step, wasm_v128_and(inexact, is_even)));
    }
    static v128_t upper(v128_t a) { return wasm_i64x2_shuffle(a, a, 1, 1); }
    static v128_t joined(v128_t a, v128_t b) { return wasm_i64x2_shuffle(a, b, 0, 2); }
    static v128_t wide(v128_t a) { return wasm_f64x2_promote_low_f32x4(a); }
    static v128_t narrow(v128_t a, v128_t b) {
        return joined(wasm_f32x4_demote_f64x2_zero(a), wasm_f32x4_demote_f64x2_zero(b));
    }
    static v128_t exact_fma(v128_t a, v128_t b, v128_t c) {
        return narrow(odd_sum(wide(a), wide(b), wide(c)), odd_sum(wide(upper(a)), wide(upper(b)), wide(upper(c))));
    }
    static v128_t fma(v128_t a, v128_t b, v128_t c) {
        const v128_t first = wasm_f64x2_add(wasm_f64x2_mul(wide(a), wide(b)), wide(c));
        const v128_t second = wasm_f64x2_add(wasm_f64x2_mul(wide(upper(a)), wide(upper(b))), wide(upper(c)));
        // Rounding twice is wrong only where the first ends in the middle of two floats; those below the normal ones
        // have other middles.
        const v128_t tail = wasm_i64x2_const_splat(0x1FFFFFFF), middle = wasm_i64x2_const_splat(0x10000000);
        const v128_t ties = wasm_v128_or(wasm_i64x2_eq(wasm_v128_and(first, tail), middle),
                                         wasm_i64x2_eq(wasm_v128_and(second, tail), middle));
        const v128_t r = narrow(first, second);
        const v128_t small = wasm_f32x4_lt(wasm_f32x4_abs(r), wasm_f32x4_const_splat(0x1p-126f));
        if (__builtin_expect(wasm_v128_any_true(wasm_v128_or(ties, small)), 0)) return exact_fma(a, b, c);
        return r;
    }
    static F fma(F a, F b, F c) { return {fma(a.low, b.low, c.low), fma(a.high, b.high, c.high)}; }

    // A polynomial stays in doubles that are rounded to floats, and is looked at once: see fma(v128_t ...). No term of
    // those that are asked for is below the normal numbers.
    struct Horner {
        // p = p * r + c, rounded; what may have been rounded wrongly is noted.
        static void step(v128_t& p, v128_t r, v128_t c, v128_t& ties) {
            const v128_t sum = wasm_f64x2_add(wasm_f64x2_mul(p, r), c);
            const v128_t tail = wasm_i64x2_const_splat(0x1FFFFFFF), middle = wasm_i64x2_const_splat(0x10000000);
            ties = wasm_v128_or(ties, wasm_i64x2_eq(wasm_v128_and(sum, tail), middle));
            p = wide(wasm_f32x4_demote_f64x2_zero(sum));
        }
        template <int kTerms>
        static v128_t of(const float (&c)[kTerms], v128_t r) {
            const v128_t low = wide(r), high = wide(upper(r));
            v128_t p = wasm_f64x2_splat(c[kTerms - 1]), q = p, ties = wasm_i64x2_const_splat(0);
            for (int i = kTerms - 2; i >= 0; --i) {
                const v128_t term = wasm_f64x2_splat(c[i]);
                step(p, low, term, ties);
                step(q, high, term, ties);
            }
            if (__builtin_expect(!wasm_v128_any_true(ties), 1)) return narrow(p, q);
            v128_t exact = wasm_f32x4_splat(c[kTerms - 1]);
            for (int i = kTerms - 2; i >= 0; --i) exact = exact_fma(exact, r, wasm_f32x4_splat(c[i]));
            return exact;
        }
        template <int kTerms>
        static F of(const float (&c)[kTerms], F r) {
            return {of(c, r.low), of(c, r.high)};
        }
    };

    static float rne(float x) { return __builtin_nearbyintf(x); }
    static double rne(double x) { return __builtin_nearbyint(x); }
    static F round(F a) { return {wasm_f32x4_nearest(a.low), wasm_f32x4_nearest(a.high)}; }
    static D round(D a) { return {wasm_f64x2_nearest(a.low), wasm_f64x2_nearest(a.high)}; }

    // pmin(x, y) is y < x ? y : x, pmax(x, y) is x < y ? y : x.
    static F min(F a, F b) { return {wasm_f32x4_pmin(b.low, a.low), wasm_f32x4_pmin(b.high, a.high)}; }
    static F max(F a, F b) { return {wasm_f32x4_pmax(b.low, a.low), wasm_f32x4_pmax(b.high, a.high)}; }
    static F clamp(F a, F lo, F hi) { return max(lo, min(hi, a)); }
    static F clamp_nan_high(F a, F lo, F hi) { return max(lo, min(a, hi)); }
    static v128_t clamp(v128_t a, v128_t lo, v128_t hi) { return wasm_f64x2_pmax(wasm_f64x2_pmin(a, hi), lo); }
    static D clamp(D a, D lo, D hi) { return {clamp(a.low, lo.low, hi.low), clamp(a.high, lo.high, hi.high)}; }

    static M less(F a, F b) { return {wasm_f32x4_lt(a.low, b.low), wasm_f32x4_lt(a.high, b.high)}; }
    static M at_least(F a, F b) { return {wasm_f32x4_ge(a.low, b.low), wasm_f32x4_ge(a.high, b.high)}; }
    static M inside(F a, F lo, F hi) {
        return {wasm_v128_and(wasm_f32x4_ge(a.low, lo.low), wasm_f32x4_le(a.low, hi.low)),
                wasm_v128_and(wasm_f32x4_ge(a.high, lo.high), wasm_f32x4_le(a.high, hi.high))};
    }
    static M is_nan(F a) { return {wasm_f32x4_ne(a.low, a.low), wasm_f32x4_ne(a.high, a.high)}; }
    static M either(M a, M b) { return {wasm_v128_or(a.low, b.low), wasm_v128_or(a.high, b.high)}; }
    static M none() { return {wasm_i32x4_const_splat(0), wasm_i32x4_const_splat(0)}; }
    static bool any(M a) { return wasm_v128_any_true(wasm_v128_or(a.low, a.high)); }
    static bool all(M a) { return wasm_i32x4_all_true(wasm_v128_and(a.low, a.high)); }
    static F select(M m, F yes, F no) {
        return {wasm_v128_bitselect(yes.low, no.low, m.low), wasm_v128_bitselect(yes.high, no.high, m.high)};
    }
    static I ones(M m) { return {wasm_u32x4_shr(m.low, 31), wasm_u32x4_shr(m.high, 31)}; }

    // Conversions saturate, which is right below; NaN and what is above become INT_MIN here.
    static v128_t to_int(v128_t a) {
        const v128_t past = wasm_f32x4_const_splat(2147483648.0f);
        return wasm_i32x4_trunc_sat_f32x4(
            wasm_v128_bitselect(a, wasm_f32x4_const_splat(-2147483648.0f), wasm_f32x4_lt(a, past)));
    }
    static v128_t two_to_int(v128_t a) {
        const v128_t past = wasm_f64x2_const_splat(2147483648.0);
        return wasm_i32x4_trunc_sat_f64x2_zero(
            wasm_v128_bitselect(a, wasm_f64x2_const_splat(-2147483648.0), wasm_f64x2_lt(a, past)));
    }
    static I to_int(F a) { return {to_int(a.low), to_int(a.high)}; }
    static I to_int(D a, D b) {
        return {joined(two_to_int(a.low), two_to_int(a.high)), joined(two_to_int(b.low), two_to_int(b.high))};
    }
    static I round_to_int(F a) { return to_int(round(a)); }
    static I flip_min(I a, M m) { return {wasm_v128_xor(a.low, m.low), wasm_v128_xor(a.high, m.high)}; }
    static F to_float(I a) { return {wasm_f32x4_convert_i32x4(a.low), wasm_f32x4_convert_i32x4(a.high)}; }
    static F to_float(D a, D b) { return {narrow(a.low, a.high), narrow(b.low, b.high)}; }
    static D widened_floats(v128_t a) { return {wide(a), wide(upper(a))}; }
    static D widened_ints(v128_t a) {
        return {wasm_f64x2_convert_low_i32x4(a), wasm_f64x2_convert_low_i32x4(upper(a))};
    }
    static D low(F a) { return widened_floats(a.low); }
    static D high(F a) { return widened_floats(a.high); }
    static D low(I a) { return widened_ints(a.low); }
    static D high(I a) { return widened_ints(a.high); }

    static I widened(v128_t words) { return {wasm_i32x4_extend_low_i16x8(words), wasm_i32x4_extend_high_i16x8(words)}; }
    static I load_int(const uint8_t* p) { return widened(wasm_u16x8_load8x8(p)); }
    static I load_int(const int8_t* p) { return widened(wasm_i16x8_load8x8(p)); }
    static I load_int(const int16_t* p) { return widened(wasm_v128_load(p)); }
    static I load_int(const int32_t* p) { return {wasm_v128_load(p), wasm_v128_load(p + 4)}; }
    template <int kBits>
    static I load_bits(const uint8_t* p) {
        if constexpr (kBits == 8) return load_int(p);
        int32_t lanes[W];
        for (int i = 0; i < W; ++i) lanes[i] = p[i * kBits / 8] >> (i * kBits % 8) & ((1 << kBits) - 1);
        return load_int(lanes);
    }
    template <int kBits>
    static F load_bit_floats(const uint8_t* p) {
        return to_float(load_bits<kBits>(p));
    }
    static float from_half(uint16_t half) { return zeropoint::from_half(half); }
    static F load_half(const uint16_t* p) {
        float lanes[W];
        for (int i = 0; i < W; ++i) lanes[i] = zeropoint::from_half(p[i]);
        return load(lanes);
    }
    static I set_int(int32_t x) { return {wasm_i32x4_splat(x), wasm_i32x4_splat(x)}; }
    static I add(I a, I b) { return {wasm_i32x4_add(a.low, b.low), wasm_i32x4_add(a.high, b.high)}; }
    static I sub(I a, I b) { return {wasm_i32x4_sub(a.low, b.low), wasm_i32x4_sub(a.high, b.high)}; }
    static I add_pairs(I sum, int32_t pair, const int16_t* w) {
        const v128_t x = wasm_i32x4_splat(pair);
        return {wasm_i32x4_add(sum.low, wasm_i32x4_dot_i16x8(x, wasm_v128_load(w))),
                wasm_i32x4_add(sum.high, wasm_i32x4_dot_i16x8(x, wasm_v128_load(w + 8)))};
    }
    static F power_of_two(I n) {
        const I biased = add(n, set_int(127));
        return {wasm_i32x4_shl(biased.low, 23), wasm_i32x4_shl(biased.high, 23)};
    }
    static void store_int(int32_t* p, I a) {
        wasm_v128_store(p, a.low);
        wasm_v128_store(p + 4, a.high);
    }

    // The low halves of each lane.
    static v128_t low16(I a) { return wasm_i16x8_shuffle(a.low, a.high, 0, 2, 4, 6, 8, 10, 12, 14); }
    static v128_t low8(v128_t a, v128_t b) {
        return wasm_i8x16_shuffle(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    }
    static void store4(uint8_t* p, I a, I b, I c, I d) {
        wasm_v128_store(p, low8(low16(a), low16(b)));
        wasm_v128_store(p + 16, low8(low16(c), low16(d)));
    }
    static void store4(int8_t* p, I a, I b, I c, I d) { store4(reinterpret_cast<uint8_t*>(p), a, b, c, d); }
    static void store4(int16_t* p, I a, I b, I c, I d) {
        wasm_v128_store(p, low16(a));
        wasm_v128_store(p + 8, low16(b));
        wasm_v128_store(p + 16, low16(c));
        wasm_v128_store(p + 24, low16(d));
    }
    static void store4(int32_t* p, I a, I b, I c, I d) {
        store_int(p, a);
        store_int(p + W, b);
        store_int(p + 2 * W, c);
        store_int(p + 3 * W, d);
    }
    static v128_t saturated(I a) { return wasm_i16x8_narrow_i32x4(a.low, a.high); }
    static v128_t saturated(const uint8_t*, v128_t a, v128_t b) { return wasm_u8x16_narrow_i16x8(a, b); }
    static v128_t saturated(const int8_t*, v128_t a, v128_t b) { return wasm_i8x16_narrow_i16x8(a, b); }
    static v128_t at_least(v128_t a, uint8_t low) { return wasm_u8x16_max(a, wasm_u8x16_splat(low)); }
    static v128_t at_least(v128_t a, int8_t low) { return wasm_i8x16_max(a, wasm_i8x16_splat(low)); }
    template <class T>
    static void store4_saturated(T* p, I a, I b, I c, I d) {
        wasm_v128_store(p, saturated(p, saturated(a), saturated(b)));
        wasm_v128_store(p + 16, saturated(p, saturated(c), saturated(d)));
    }
    static v128_t offset16(I a, int32_t offset) {
        return wasm_i16x8_add_sat(saturated(a), wasm_i16x8_splat(static_cast<int16_t>(offset)));
    }
    template <class T>
    static void store4_offset(T* p, I a, I b, I c, I d, int32_t offset, T low) {
        wasm_v128_store(p, at_least(saturated(p, offset16(a, offset), offset16(b, offset)), low));
        wasm_v128_store(p + 16, at_least(saturated(p, offset16(c, offset), offset16(d, offset)), low));
    }
    static void store16(uint8_t* p, const F* v, int32_t offset, int32_t lo) {
        const v128_t least = wasm_i16x8_splat(static_cast<int16_t>(lo));
        const auto q = [&](F a) { return wasm_i16x8_max(offset16(round_to_int(a), offset), least); };
        wasm_v128_store(p, low8(q(v[0]), q(v[1])));
    }
    template <class T>
    static void store4_clamped(T* p, F a, F b, F c, F d, int32_t offset, int32_t lo, int32_t hi) {
        const v128_t least = wasm_i16x8_splat(static_cast<int16_t>(lo)),
                     most = wasm_i16x8_splat(static_cast<int16_t>(hi));
        const auto q = [&](F x) {
            return wasm_i16x8_max(wasm_i16x8_min(offset16(round_to_int(x), offset), most), least);
        };
        wasm_v128_store(p, saturated(p, q(a), q(b)));
        wasm_v128_store(p + 16, saturated(p, q(c), q(d)));
    }
    template <class T>
    static void store4_offset(T* p, F a, F b, F c, F d, int32_t offset) {
        const auto q = [&](F x) { return offset16(round_to_int(x), offset); };
        wasm_v128_store(p, saturated(p, q(a), q(b)));
        wasm_v128_store(p + 16, saturated(p, q(c), q(d)));
    }

    static I add_bytes(I sum, const uint8_t* p, uint8_t flip) {
        const auto plus = [&](v128_t to, const uint8_t* from) {
            const v128_t x = wasm_v128_xor(wasm_v128_load(from), wasm_u8x16_splat(flip));
            return wasm_i32x4_add(to, wasm_u32x4_extadd_pairwise_u16x8(wasm_u16x8_extadd_pairwise_u8x16(x)));
        };
        return {plus(sum.low, p), plus(sum.high, p + 16)};
    }
    static I add_squares(I sum, const uint8_t* p, uint8_t flip) {
        const auto plus = [&](v128_t to, const uint8_t* from) {
            const v128_t x = wasm_v128_xor(wasm_v128_load(from), wasm_u8x16_splat(flip));
            const v128_t half = wasm_i32x4_add(to, wasm_u32x4_extadd_pairwise_u16x8(wasm_u16x8_extmul_low_u8x16(x, x)));
            return wasm_i32x4_add(half, wasm_u32x4_extadd_pairwise_u16x8(wasm_u16x8_extmul_high_u8x16(x, x)));
        };
        return {plus(sum.low, p), plus(sum.high, p + 16)};
    }
    static int32_t reduce_add(I a) {
        int32_t lanes[4], sum = 0;
        wasm_v128_store(lanes, wasm_i32x4_add(a.low, a.high));
        for (int32_t lane : lanes) sum += lane;
        return sum;
    }
    static float reduce_add(F a) {
        const v128_t four = wasm_f32x4_add(a.low, a.high), two = wasm_f32x4_add(four, upper(four));
        return wasm_f32x4_extract_lane(two, 0) + wasm_f32x4_extract_lane(two, 1);
    }
    static float reduce_min(F a) {
        float lanes[W];
        store(lanes, a);
        float r = lanes[0];
        for (float x : lanes) r = x < r ? x : r;
        return r;
    }
    static float reduce_max(F a) {
        float lanes[W];
        store(lanes, a);
        float r = lanes[0];
        for (float x : lanes) r = x > r ? x : r;
        return r;
    }
};

}  // namespace
}  // namespace zeropoint
