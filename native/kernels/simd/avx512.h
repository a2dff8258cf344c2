// Vectors of sixteen floats with AVX512 F, BW, DQ and VL. See simd/portable.h for what each function promises.
#pragma once

#include <cstdint>
#include <cstring>
#include <immintrin.h>

namespace zeropoint {
namespace {

struct Avx512 {
    static constexpr int W = 16;
    using F = __m512;
    using D = __m512d;
    struct I {
        __m512i v;
    };
    struct M {
        __mmask16 v;
    };

    static F set(float x) { return _mm512_set1_ps(x); }
    static D set(double x) { return _mm512_set1_pd(x); }
    static F load(const float* p) { return _mm512_loadu_ps(p); }
    static void store(float* p, F a) { _mm512_storeu_ps(p, a); }
    static D load(const double* p) { return _mm512_loadu_pd(p); }

    static F add(F a, F b) { return _mm512_add_ps(a, b); }
    static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
    static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
    static F div(F a, F b) { return _mm512_div_ps(a, b); }
    static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
    static D add(D a, D b) { return _mm512_add_pd(a, b); }
    static D sub(D a, D b) { return _mm512_sub_pd(a, b); }
    static D mul(D a, D b) { return _mm512_mul_pd(a, b); }

    static constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    static F round(F a) { return _mm512_roundscale_ps(a, kNearest); }
    static D round(D a) { return _mm512_roundscale_pd(a, kNearest); }

    static F clamp(F a, F lo, F hi) { return _mm512_max_ps(lo, _mm512_min_ps(hi, a)); }
    static D clamp(D a, D lo, D hi) { return _mm512_max_pd(lo, _mm512_min_pd(hi, a)); }
    static F clamp_nan_high(F a, F lo, F hi) { return _mm512_max_ps(lo, _mm512_min_ps(a, hi)); }
    static F min(F a, F b) { return _mm512_min_ps(a, b); }
    static F max(F a, F b) { return _mm512_max_ps(a, b); }

    static M less(F a, F b) { return {_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ)}; }
    static M at_least(F a, F b) { return {_mm512_cmp_ps_mask(a, b, _CMP_GE_OQ)}; }
    static M inside(F a, F lo, F hi) {
        return {_mm512_mask_cmp_ps_mask(_mm512_cmp_ps_mask(a, lo, _CMP_GE_OQ), a, hi, _CMP_LE_OQ)};
    }
    static M is_nan(F a) { return {_mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q)}; }
    static M either(M a, M b) { return {static_cast<__mmask16>(a.v | b.v)}; }
    static M none() { return {0}; }
    static bool any(M a) { return a.v != 0; }
    static bool all(M a) { return a.v == 0xFFFF; }
    static F select(M m, F yes, F no) { return _mm512_mask_blend_ps(m.v, no, yes); }
    static I ones(M m) { return {_mm512_maskz_set1_epi32(m.v, 1)}; }

    static I to_int(F a) { return {_mm512_cvttps_epi32(a)}; }
    static I to_int(D a, D b) {
        return {_mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvttpd_epi32(a)), _mm512_cvttpd_epi32(b), 1)};
    }
    static I flip_min(I a, M m) { return {_mm512_mask_xor_epi32(a.v, m.v, a.v, _mm512_set1_epi32(-1))}; }
    static F to_float(I a) { return _mm512_cvtepi32_ps(a.v); }
    static F to_float(D a, D b) {
        return _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(a)), _mm512_cvtpd_ps(b), 1);
    }
    static D low(F a) { return _mm512_cvtps_pd(_mm512_castps512_ps256(a)); }
    static D high(F a) { return _mm512_cvtps_pd(_mm512_extractf32x8_ps(a, 1)); }
    static D low(I a) { return _mm512_cvtepi32_pd(_mm512_castsi512_si256(a.v)); }
    static D high(I a) { return _mm512_cvtepi32_pd(_mm512_extracti64x4_epi64(a.v, 1)); }

    static I load_int(const uint8_t* p) {
        return {_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
    }
    static I load_int(const int8_t* p) {
        return {_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
    }
    static I load_int(const int16_t* p) {
        return {_mm512_cvtepi16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
    }
    static I load_int(const int32_t* p) { return {_mm512_loadu_si512(p)}; }
    template <int kBits>
    static I load_bits(const uint8_t* p) {
        if constexpr (kBits == 8) return load_int(p);
        // 4 bits: lanes 0-7 from the first four bytes, 8-15 from the others.
        uint32_t parts[2] = {};
        std::memcpy(parts, p, 2 * kBits);
        const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        const __m512i shifts =
            _mm512_and_si512(_mm512_mullo_epi32(lanes, _mm512_set1_epi32(kBits)), _mm512_set1_epi32(31));
        __m512i all = _mm512_set1_epi32(static_cast<int32_t>(parts[0]));
        if constexpr (kBits == 4) all = _mm512_mask_set1_epi32(all, 0xFF00, static_cast<int32_t>(parts[1]));
        return {_mm512_and_si512(_mm512_srlv_epi32(all, shifts), _mm512_set1_epi32((1 << kBits) - 1))};
    }
    // The same as float32. 4 bits: looked up in a register, for which the bits above them do not count.
    template <int kBits>
    static F load_bit_floats(const uint8_t* p) {
        if constexpr (kBits != 4) return to_float(load_bits<kBits>(p));
        const __m512i halves = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
        const __m512i shifts = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
        const __m512 values = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        const __m512i all = _mm512_permutexvar_epi32(halves, _mm512_castsi128_si512(_mm_loadu_si64(p)));
        return _mm512_permutexvar_ps(_mm512_srlv_epi32(all, shifts), values);
    }
    static float from_half(uint16_t half) { return _cvtsh_ss(half); }
    static I set_int(int32_t x) { return {_mm512_set1_epi32(x)}; }
    static I add(I a, I b) { return {_mm512_add_epi32(a.v, b.v)}; }
    static I sub(I a, I b) { return {_mm512_sub_epi32(a.v, b.v)}; }
    static I round_to_int(F a) { return {_mm512_cvt_roundps_epi32(a, kNearest)}; }
    static F power_of_two(I n) {
        return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(n.v, _mm512_set1_epi32(127)), 23));
    }
    static F load_half(const uint16_t* p) {
        return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    }
    static void store_int(int32_t* p, I a) { _mm512_storeu_si512(p, a.v); }

    static void store4(uint8_t* p, I a, I b, I c, I d) {
        const I parts[4] = {a, b, c, d};
        for (int k = 0; k < 4; ++k)
            _mm_storeu_si128(reinterpret_cast<__m128i*>(p + k * W), _mm512_cvtepi32_epi8(parts[k].v));
    }
    static void store4(int8_t* p, I a, I b, I c, I d) { store4(reinterpret_cast<uint8_t*>(p), a, b, c, d); }
    static void store4(int16_t* p, I a, I b, I c, I d) {
        const I parts[4] = {a, b, c, d};
        for (int k = 0; k < 4; ++k)
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + k * W), _mm512_cvtepi32_epi16(parts[k].v));
    }
    static void store4(int32_t* p, I a, I b, I c, I d) {
        const I parts[4] = {a, b, c, d};
        for (int k = 0; k < 4; ++k) store_int(p + k * W, parts[k]);
    }
    static void store4_saturated(uint8_t* p, I a, I b, I c, I d) {
        const I parts[4] = {a, b, c, d};
        for (int k = 0; k < 4; ++k) {
            const __m512i positive = _mm512_max_epi32(parts[k].v, _mm512_setzero_si512());
            _mm_storeu_si128(reinterpret_cast<__m128i*>(p + k * W), _mm512_cvtusepi32_epi8(positive));
        }
    }
    static void store4_saturated(int8_t* p, I a, I b, I c, I d) {
        const I parts[4] = {a, b, c, d};
        for (int k = 0; k < 4; ++k)
            _mm_storeu_si128(reinterpret_cast<__m128i*>(p + k * W), _mm512_cvtsepi32_epi8(parts[k].v));
    }
    static __m256i saturated_sum(I a, int32_t offset) {
        return _mm256_adds_epi16(_mm512_cvtsepi32_epi16(a.v), _mm256_set1_epi16(static_cast<int16_t>(offset)));
    }
    static void store4_offset(uint8_t* p, I a, I b, I c, I d, int32_t offset, uint8_t low) {
        const I parts[4] = {a, b, c, d};
        // What is below `low` may be negative: as words it is still in order.
        const __m256i least = _mm256_set1_epi16(low);
        for (int k = 0; k < 4; ++k) {
            const __m256i words = _mm256_max_epi16(saturated_sum(parts[k], offset), least);
            _mm_storeu_si128(reinterpret_cast<__m128i*>(p + k * W), _mm256_cvtusepi16_epi8(words));
        }
    }
    static void store4_offset(int8_t* p, I a, I b, I c, I d, int32_t offset, int8_t low) {
        const I parts[4] = {a, b, c, d};
        const __m256i least = _mm256_set1_epi16(low);
        for (int k = 0; k < 4; ++k) {
            const __m256i words = _mm256_max_epi16(saturated_sum(parts[k], offset), least);
            _mm_storeu_si128(reinterpret_cast<__m128i*>(p + k * W), _mm256_cvtsepi16_epi8(words));
        }
    }
    static void store16(uint8_t* p, const F* v, int32_t offset, int32_t lo) {
        // INT_MIN, for v below it, plus a negative offset would wrap: saturate first, as the other types do.
        const __m512i q = _mm512_max_epi32(_mm512_cvtps_epi32(v[0]), _mm512_set1_epi32(-32768));
        const __m512i r = _mm512_max_epi32(_mm512_add_epi32(q, _mm512_set1_epi32(offset)), _mm512_set1_epi32(lo));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(r));
    }
    template <class T>
    static void store4_clamped(T* p, F a, F b, F c, F d, int32_t offset, int32_t lo, int32_t hi) {
        const F parts[4] = {a, b, c, d};
        for (int k = 0; k < 4; ++k) {
            // INT_MIN, for v below it, plus a negative offset would wrap: saturate first, as the other types do.
            const __m512i q = _mm512_max_epi32(_mm512_cvtps_epi32(parts[k]), _mm512_set1_epi32(-32768));
            const __m512i r = _mm512_min_epi32(_mm512_add_epi32(q, _mm512_set1_epi32(offset)), _mm512_set1_epi32(hi));
            _mm_storeu_si128(reinterpret_cast<__m128i*>(p + k * W),
                             _mm512_cvtepi32_epi8(_mm512_max_epi32(r, _mm512_set1_epi32(lo))));
        }
    }
    template <class T>
    static void store4_offset(T* p, F a, F b, F c, F d, int32_t offset) {
        constexpr int32_t kLow = T(-1) < T(0) ? -128 : 0;
        store4_clamped(p, a, b, c, d, offset, kLow, kLow + 255);
    }
    static __m512i flipped(const uint8_t* p, uint8_t flip) {
        return _mm512_xor_si512(_mm512_loadu_si512(p), _mm512_set1_epi8(static_cast<char>(flip)));
    }
    static I add_bytes(I sum, const uint8_t* p, uint8_t flip) {
        return {_mm512_add_epi32(sum.v, _mm512_sad_epu8(flipped(p, flip), _mm512_setzero_si512()))};
    }
    static I add_squares(I sum, const uint8_t* p, uint8_t flip) {
        const __m512i x = flipped(p, flip), zero = _mm512_setzero_si512();
        const __m512i low = _mm512_unpacklo_epi8(x, zero), high = _mm512_unpackhi_epi8(x, zero);
        return {_mm512_add_epi32(sum.v, _mm512_add_epi32(_mm512_madd_epi16(low, low), _mm512_madd_epi16(high, high)))};
    }
    static int32_t reduce_add(I a) { return _mm512_reduce_add_epi32(a.v); }
    static float reduce_add(F a) {
        const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
        const __m128 four = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
        const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
        return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
    }
    static float reduce_min(F a) { return _mm512_reduce_min_ps(a); }
    static float reduce_max(F a) { return _mm512_reduce_max_ps(a); }
};

}  // namespace
}  // namespace zeropoint
