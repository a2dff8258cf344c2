// Vectors of eight floats as two registers of NEON, so that lanes are those of simd/portable.h, which says what each
// function promises. NEON's own minimum, maximum and conversions treat NaN, zeros and what is out of range in ways that
// differ from it: comparisons and selections stand in for them.
#pragma once

#include <arm_neon.h>
#include <cstdint>
#include <cstring>

namespace zeropoint {
namespace {

struct Neon {
    static constexpr int W = 8;
    struct F {
        float32x4_t low, high;
    };
    struct D {
        float64x2_t low, high;
    };
    struct I {
        int32x4_t low, high;
    };
    struct M {
        uint32x4_t low, high;
    };

    static F set(float x) { return {vdupq_n_f32(x), vdupq_n_f32(x)}; }
    static D set(double x) { return {vdupq_n_f64(x), vdupq_n_f64(x)}; }
    static F load(const float* p) { return {vld1q_f32(p), vld1q_f32(p + 4)}; }
    static void store(float* p, F a) {
        vst1q_f32(p, a.low);
        vst1q_f32(p + 4, a.high);
    }
    static D load(const double* p) { return {vld1q_f64(p), vld1q_f64(p + 2)}; }

    static F add(F a, F b) { return {vaddq_f32(a.low, b.low), vaddq_f32(a.high, b.high)}; }
    static F sub(F a, F b) { return {vsubq_f32(a.low, b.low), vsubq_f32(a.high, b.high)}; }
    static F mul(F a, F b) { return {vmulq_f32(a.low, b.low), vmulq_f32(a.high, b.high)}; }
    static F div(F a, F b) { return {vdivq_f32(a.low, b.low), vdivq_f32(a.high, b.high)}; }
    static F fma(F a, F b, F c) { return {vfmaq_f32(c.low, a.low, b.low), vfmaq_f32(c.high, a.high, b.high)}; }
    static D add(D a, D b) { return {vaddq_f64(a.low, b.low), vaddq_f64(a.high, b.high)}; }
    static D sub(D a, D b) { return {vsubq_f64(a.low, b.low), vsubq_f64(a.high, b.high)}; }
    static D mul(D a, D b) { return {vmulq_f64(a.low, b.low), vmulq_f64(a.high, b.high)}; }

    static F round(F a) { return {vrndnq_f32(a.low), vrndnq_f32(a.high)}; }
    static D round(D a) { return {vrndnq_f64(a.low), vrndnq_f64(a.high)}; }

    // a < b ? a : b, and a > b ? a : b.
    static float32x4_t lesser(float32x4_t a, float32x4_t b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
    static float32x4_t greater(float32x4_t a, float32x4_t b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
    static F min(F a, F b) { return {lesser(a.low, b.low), lesser(a.high, b.high)}; }
    static F max(F a, F b) { return {greater(a.low, b.low), greater(a.high, b.high)}; }
    static F clamp(F a, F lo, F hi) { return max(lo, min(hi, a)); }
    static F clamp_nan_high(F a, F lo, F hi) { return max(lo, min(a, hi)); }
    static float64x2_t clamp(float64x2_t a, float64x2_t lo, float64x2_t hi) {
        const float64x2_t t = vbslq_f64(vcltq_f64(hi, a), hi, a);
        return vbslq_f64(vcgtq_f64(lo, t), lo, t);
    }
    static D clamp(D a, D lo, D hi) { return {clamp(a.low, lo.low, hi.low), clamp(a.high, lo.high, hi.high)}; }

    static M less(F a, F b) { return {vcltq_f32(a.low, b.low), vcltq_f32(a.high, b.high)}; }
    static M at_least(F a, F b) { return {vcgeq_f32(a.low, b.low), vcgeq_f32(a.high, b.high)}; }
    static M inside(F a, F lo, F hi) {
        return {vandq_u32(vcgeq_f32(a.low, lo.low), vcleq_f32(a.low, hi.low)),
                vandq_u32(vcgeq_f32(a.high, lo.high), vcleq_f32(a.high, hi.high))};
    }
    static M is_nan(F a) { return {vmvnq_u32(vceqq_f32(a.low, a.low)), vmvnq_u32(vceqq_f32(a.high, a.high))}; }
    static M either(M a, M b) { return {vorrq_u32(a.low, b.low), vorrq_u32(a.high, b.high)}; }
    static M none() { return {vdupq_n_u32(0), vdupq_n_u32(0)}; }
    static bool any(M a) { return vmaxvq_u32(vorrq_u32(a.low, a.high)) != 0; }
    static bool all(M a) { return vminvq_u32(vandq_u32(a.low, a.high)) != 0; }
    static F select(M m, F yes, F no) {
        return {vbslq_f32(m.low, yes.low, no.low), vbslq_f32(m.high, yes.high, no.high)};
    }
    static I ones(M m) {
        return {vreinterpretq_s32_u32(vshrq_n_u32(m.low, 31)), vreinterpretq_s32_u32(vshrq_n_u32(m.high, 31))};
    }

    // NEON gives 0 for NaN and the nearest integer for what is out of range; what is below is right already.
    static int32x4_t or_least(float32x4_t a, int32x4_t converted) {
        return vbslq_s32(vcltq_f32(a, vdupq_n_f32(2147483648.0f)), converted, vdupq_n_s32(INT32_MIN));
    }
    static int32x2_t to_int(float64x2_t a) {
        const uint64x2_t fits =
            vandq_u64(vcltq_f64(a, vdupq_n_f64(2147483648.0)), vcgtq_f64(a, vdupq_n_f64(-2147483649.0)));
        return vmovn_s64(vbslq_s64(fits, vcvtq_s64_f64(a), vdupq_n_s64(INT32_MIN)));
    }
    static I to_int(F a) { return {or_least(a.low, vcvtq_s32_f32(a.low)), or_least(a.high, vcvtq_s32_f32(a.high))}; }
    static I to_int(D a, D b) {
        return {vcombine_s32(to_int(a.low), to_int(a.high)), vcombine_s32(to_int(b.low), to_int(b.high))};
    }
    static I round_to_int(F a) {
        return {or_least(a.low, vcvtnq_s32_f32(a.low)), or_least(a.high, vcvtnq_s32_f32(a.high))};
    }
    static I flip_min(I a, M m) {
        return {veorq_s32(a.low, vreinterpretq_s32_u32(m.low)), veorq_s32(a.high, vreinterpretq_s32_u32(m.high))};
    }
    static F to_float(I a) { return {vcvtq_f32_s32(a.low), vcvtq_f32_s32(a.high)}; }
    static F to_float(D a, D b) {
        return {vcvt_high_f32_f64(vcvt_f32_f64(a.low), a.high), vcvt_high_f32_f64(vcvt_f32_f64(b.low), b.high)};
    }
    static D widened(float32x4_t a) { return {vcvt_f64_f32(vget_low_f32(a)), vcvt_high_f64_f32(a)}; }
    static D widened(int32x4_t a) {
        return {vcvtq_f64_s64(vmovl_s32(vget_low_s32(a))), vcvtq_f64_s64(vmovl_high_s32(a))};
    }
    static D low(F a) { return widened(a.low); }
    static D high(F a) { return widened(a.high); }
    static D low(I a) { return widened(a.low); }
    static D high(I a) { return widened(a.high); }

    static I widened(int16x8_t a) { return {vmovl_s16(vget_low_s16(a)), vmovl_high_s16(a)}; }
    static I load_int(const uint8_t* p) { return widened(vreinterpretq_s16_u16(vmovl_u8(vld1_u8(p)))); }
    static I load_int(const int8_t* p) { return widened(vmovl_s8(vld1_s8(p))); }
    static I load_int(const int16_t* p) { return widened(vld1q_s16(p)); }
    static I load_int(const int32_t* p) { return {vld1q_s32(p), vld1q_s32(p + 4)}; }
    template <int kBits>
    static I load_bits(const uint8_t* p) {
        if constexpr (kBits == 8) return load_int(p);
        uint32_t all = 0;
        std::memcpy(&all, p, sizeof all);
        const uint32x4_t each = vdupq_n_u32(all), mask = vdupq_n_u32((1u << kBits) - 1);
        const int32x4_t low = {0, -kBits, -2 * kBits, -3 * kBits}, high = vsubq_s32(low, vdupq_n_s32(4 * kBits));
        return {vreinterpretq_s32_u32(vandq_u32(vshlq_u32(each, low), mask)),
                vreinterpretq_s32_u32(vandq_u32(vshlq_u32(each, high), mask))};
    }
    template <int kBits>
    static F load_bit_floats(const uint8_t* p) {
        return to_float(load_bits<kBits>(p));
    }
    static float from_half(uint16_t half) {
        __fp16 x;
        std::memcpy(&x, &half, sizeof x);
        return static_cast<float>(x);
    }
    static F load_half(const uint16_t* p) {
        const float16x8_t x = vreinterpretq_f16_u16(vld1q_u16(p));
        return {vcvt_f32_f16(vget_low_f16(x)), vcvt_high_f32_f16(x)};
    }
    static I set_int(int32_t x) { return {vdupq_n_s32(x), vdupq_n_s32(x)}; }
    static I add(I a, I b) { return {vaddq_s32(a.low, b.low), vaddq_s32(a.high, b.high)}; }
    static I sub(I a, I b) { return {vsubq_s32(a.low, b.low), vsubq_s32(a.high, b.high)}; }
    static F power_of_two(I n) {
        const int32x4_t bias = vdupq_n_s32(127);
        return {vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(n.low, bias), 23)),
                vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(n.high, bias), 23))};
    }
    static void store_int(int32_t* p, I a) {
        vst1q_s32(p, a.low);
        vst1q_s32(p + 4, a.high);
    }

    // Every second 16-bit (8-bit) piece is the low half of an int32 (int16).
    static int16x8_t low16(I a) { return vuzp1q_s16(vreinterpretq_s16_s32(a.low), vreinterpretq_s16_s32(a.high)); }
    static uint8x16_t low8(int16x8_t a, int16x8_t b) {
        return vuzp1q_u8(vreinterpretq_u8_s16(a), vreinterpretq_u8_s16(b));
    }
    static void store4(uint8_t* p, I a, I b, I c, I d) {
        vst1q_u8(p, low8(low16(a), low16(b)));
        vst1q_u8(p + 16, low8(low16(c), low16(d)));
    }
    static void store4(int8_t* p, I a, I b, I c, I d) { store4(reinterpret_cast<uint8_t*>(p), a, b, c, d); }
    static void store4(int16_t* p, I a, I b, I c, I d) {
        vst1q_s16(p, low16(a));
        vst1q_s16(p + 8, low16(b));
        vst1q_s16(p + 16, low16(c));
        vst1q_s16(p + 24, low16(d));
    }
    static void store4(int32_t* p, I a, I b, I c, I d) {
        store_int(p, a);
        store_int(p + W, b);
        store_int(p + 2 * W, c);
        store_int(p + 3 * W, d);
    }
    static int16x8_t saturated(I a) { return vqmovn_high_s32(vqmovn_s32(a.low), a.high); }
    static uint8x16_t saturated(const uint8_t*, int16x8_t a, int16x8_t b) {
        return vqmovun_high_s16(vqmovun_s16(a), b);
    }
    static int8x16_t saturated(const int8_t*, int16x8_t a, int16x8_t b) { return vqmovn_high_s16(vqmovn_s16(a), b); }
    static void store(uint8_t* p, uint8x16_t a) { vst1q_u8(p, a); }
    static void store(int8_t* p, int8x16_t a) { vst1q_s8(p, a); }
    static uint8x16_t at_least(uint8x16_t a, uint8_t low) { return vmaxq_u8(a, vdupq_n_u8(low)); }
    static int8x16_t at_least(int8x16_t a, int8_t low) { return vmaxq_s8(a, vdupq_n_s8(low)); }
    template <class T>
    static void store4_saturated(T* p, I a, I b, I c, I d) {
        store(p, saturated(p, saturated(a), saturated(b)));
        store(p + 16, saturated(p, saturated(c), saturated(d)));
    }
    static int16x8_t offset16(I a, int32_t offset) {
        return vqaddq_s16(saturated(a), vdupq_n_s16(static_cast<int16_t>(offset)));
    }
    template <class T>
    static void store4_offset(T* p, I a, I b, I c, I d, int32_t offset, T low) {
        store(p, at_least(saturated(p, offset16(a, offset), offset16(b, offset)), low));
        store(p + 16, at_least(saturated(p, offset16(c, offset), offset16(d, offset)), low));
    }
    // No lane is NaN or above: the conversion needs no selection.
    static void store16(uint8_t* p, const F* v, int32_t offset, int32_t lo) {
        const int16x8_t least = vdupq_n_s16(static_cast<int16_t>(lo));
        const auto q = [&](F a) {
            return vmaxq_s16(offset16({vcvtnq_s32_f32(a.low), vcvtnq_s32_f32(a.high)}, offset), least);
        };
        vst1q_u8(p, low8(q(v[0]), q(v[1])));
    }
    template <class T>
    static void store4_clamped(T* p, F a, F b, F c, F d, int32_t offset, int32_t lo, int32_t hi) {
        const int16x8_t least = vdupq_n_s16(static_cast<int16_t>(lo)), most = vdupq_n_s16(static_cast<int16_t>(hi));
        const auto q = [&](F x) { return vmaxq_s16(vminq_s16(offset16(round_to_int(x), offset), most), least); };
        store(p, saturated(p, q(a), q(b)));
        store(p + 16, saturated(p, q(c), q(d)));
    }
    template <class T>
    static void store4_offset(T* p, F a, F b, F c, F d, int32_t offset) {
        const auto q = [&](F x) { return offset16(round_to_int(x), offset); };
        store(p, saturated(p, q(a), q(b)));
        store(p + 16, saturated(p, q(c), q(d)));
    }

    static uint8x16_t flipped(const uint8_t* p, uint8_t flip) { return veorq_u8(vld1q_u8(p), vdupq_n_u8(flip)); }
    static I add_bytes(I sum, const uint8_t* p, uint8_t flip) {
        const auto plus = [&](int32x4_t to, const uint8_t* from) {
            return vreinterpretq_s32_u32(vpadalq_u16(vreinterpretq_u32_s32(to), vpaddlq_u8(flipped(from, flip))));
        };
        return {plus(sum.low, p), plus(sum.high, p + 16)};
    }
    static I add_squares(I sum, const uint8_t* p, uint8_t flip) {
        const auto plus = [&](int32x4_t to, const uint8_t* from) {
            const uint8x16_t x = flipped(from, flip);
            const uint32x4_t half = vpadalq_u16(vreinterpretq_u32_s32(to), vmull_u8(vget_low_u8(x), vget_low_u8(x)));
            return vreinterpretq_s32_u32(vpadalq_u16(half, vmull_high_u8(x, x)));
        };
        return {plus(sum.low, p), plus(sum.high, p + 16)};
    }
    static int32_t reduce_add(I a) { return vaddvq_s32(vaddq_s32(a.low, a.high)); }
    static float reduce_add(F a) {
        const float32x4_t four = vaddq_f32(a.low, a.high);
        const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
        return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
    }
    static float reduce_min(F a) {
        const float32x4_t four = lesser(a.low, a.high), two = lesser(four, vextq_f32(four, four, 2));
        const float x = vgetq_lane_f32(two, 0), y = vgetq_lane_f32(two, 1);
        return x < y ? x : y;
    }
    static float reduce_max(F a) {
        const float32x4_t four = greater(a.low, a.high), two = greater(four, vextq_f32(four, four, 2));
        const float x = vgetq_lane_f32(two, 0), y = vgetq_lane_f32(two, 1);
        return x > y ? x : y;
    }
};

}  // namespace
}  // namespace zeropoint
