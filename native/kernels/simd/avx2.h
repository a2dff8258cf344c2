// Vectors of eight floats with AVX2, FMA and F16C. See simd/portable.h for what each function promises.
#pragma once

#include <cstdint>
#include <cstring>
#include <immintrin.h>

namespace zeropoint {
namespace {

struct Avx2 {
    static constexpr int W = 8;
    using F = __m256;
    using D = __m256d;
    struct I {
        __m256i v;
    };
    struct M {
        __m256 v;
    };

    static F set(float x) { return _mm256_set1_ps(x); }
    static D set(double x) { return _mm256_set1_pd(x); }
    static F load(const float* p) { return _mm256_loadu_ps(p); }
    static void store(float* p, F a) { _mm256_storeu_ps(p, a); }
    static D load(const double* p) { return _mm256_loadu_pd(p); }

    static F add(F a, F b) { return _mm256_add_ps(a, b); }
    static F sub(F a, F b) { return _mm256_sub_ps(a, b); }
    static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
    static F div(F a, F b) { return _mm256_div_ps(a, b); }
    static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
    static D add(D a, D b) { return _mm256_add_pd(a, b); }
    static D sub(D a, D b) { return _mm256_sub_pd(a, b); }
    static D mul(D a, D b) { return _mm256_mul_pd(a, b); }

    static constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    static F round(F a) { return _mm256_round_ps(a, kNearest); }
    static D round(D a) { return _mm256_round_pd(a, kNearest); }

    // vminps and vmaxps return their second operand when either is NaN: the order decides what NaN becomes.
    static F clamp(F a, F lo, F hi) { return _mm256_max_ps(lo, _mm256_min_ps(hi, a)); }
    static D clamp(D a, D lo, D hi) { return _mm256_max_pd(lo, _mm256_min_pd(hi, a)); }
    static F clamp_nan_high(F a, F lo, F hi) { return _mm256_max_ps(lo, _mm256_min_ps(a, hi)); }
    static F min(F a, F b) { return _mm256_min_ps(a, b); }
    static F max(F a, F b) { return _mm256_max_ps(a, b); }

    static M less(F a, F b) { return {_mm256_cmp_ps(a, b, _CMP_LT_OQ)}; }
    static M at_least(F a, F b) { return {_mm256_cmp_ps(a, b, _CMP_GE_OQ)}; }
    static M inside(F a, F lo, F hi) {
        return {_mm256_and_ps(_mm256_cmp_ps(a, lo, _CMP_GE_OQ), _mm256_cmp_ps(a, hi, _CMP_LE_OQ))};
    }
    static M is_nan(F a) { return {_mm256_cmp_ps(a, a, _CMP_UNORD_Q)}; }
    static M either(M a, M b) { return {_mm256_or_ps(a.v, b.v)}; }
    static M none() { return {_mm256_setzero_ps()}; }
    static bool any(M a) { return _mm256_movemask_ps(a.v) != 0; }
    static bool all(M a) { return _mm256_movemask_ps(a.v) == 0xFF; }
    static F select(M m, F yes, F no) { return _mm256_blendv_ps(no, yes, m.v); }
    static I ones(M m) { return {_mm256_srli_epi32(_mm256_castps_si256(m.v), 31)}; }

    static I to_int(F a) { return {_mm256_cvttps_epi32(a)}; }
    static I to_int(D a, D b) { return {_mm256_set_m128i(_mm256_cvttpd_epi32(b), _mm256_cvttpd_epi32(a))}; }
    static I flip_min(I a, M m) { return {_mm256_xor_si256(a.v, _mm256_castps_si256(m.v))}; }
    static F to_float(I a) { return _mm256_cvtepi32_ps(a.v); }
    static F to_float(D a, D b) { return _mm256_set_m128(_mm256_cvtpd_ps(b), _mm256_cvtpd_ps(a)); }
    static D low(F a) { return _mm256_cvtps_pd(_mm256_castps256_ps128(a)); }
    static D high(F a) { return _mm256_cvtps_pd(_mm256_extractf128_ps(a, 1)); }
    static D low(I a) { return _mm256_cvtepi32_pd(_mm256_castsi256_si128(a.v)); }
    static D high(I a) { return _mm256_cvtepi32_pd(_mm256_extracti128_si256(a.v, 1)); }

    static I load_int(const uint8_t* p) {
        return {_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)))};
    }
    static I load_int(const int8_t* p) {
        return {_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)))};
    }
    static I load_int(const int16_t* p) {
        return {_mm256_cvtepi16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
    }
    static I load_int(const int32_t* p) { return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))}; }
    template <int kBits>
    static I load_bits(const uint8_t* p) {
        if constexpr (kBits == 8) return load_int(p);
        uint32_t all = 0;
        std::memcpy(&all, p, sizeof all);
        const __m256i shifts = _mm256_mullo_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(kBits));
        const __m256i each = _mm256_srlv_epi32(_mm256_set1_epi32(static_cast<int32_t>(all)), shifts);
        return {_mm256_and_si256(each, _mm256_set1_epi32((1 << kBits) - 1))};
    }
    template <int kBits>
    static F load_bit_floats(const uint8_t* p) {
        return to_float(load_bits<kBits>(p));
    }
    static float from_half(uint16_t half) { return _cvtsh_ss(half); }
    static I set_int(int32_t x) { return {_mm256_set1_epi32(x)}; }
    static I add(I a, I b) { return {_mm256_add_epi32(a.v, b.v)}; }
    static I sub(I a, I b) { return {_mm256_sub_epi32(a.v, b.v)}; }
    static I round_to_int(F a) { return {_mm256_cvtps_epi32(a)}; }
    static F power_of_two(I n) {
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n.v, _mm256_set1_epi32(127)), 23));
    }
    static F load_half(const uint16_t* p) {
        return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    }
    static void store_int(int32_t* p, I a) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a.v); }

    // The pack instructions saturate and work within 128-bit halves: mask first so that nothing saturates, then put the
    // eight 4-byte (or four 8-byte) pieces back in order.
    static __m256i low16(I a, I b) {
        const __m256i mask = _mm256_set1_epi32(0xFFFF);
        return _mm256_packus_epi32(_mm256_and_si256(a.v, mask), _mm256_and_si256(b.v, mask));
    }
    static void store4(uint8_t* p, I a, I b, I c, I d) {
        const __m256i mask = _mm256_set1_epi16(0xFF);
        const __m256i bytes =
            _mm256_packus_epi16(_mm256_and_si256(low16(a, b), mask), _mm256_and_si256(low16(c, d), mask));
        const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permutevar8x32_epi32(bytes, order));
    }
    static void store4(int8_t* p, I a, I b, I c, I d) { store4(reinterpret_cast<uint8_t*>(p), a, b, c, d); }
    static void store4(int16_t* p, I a, I b, I c, I d) {
        constexpr int kOrder = 0xD8;  // 64-bit pieces 0, 2, 1, 3
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(low16(a, b), kOrder));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 16), _mm256_permute4x64_epi64(low16(c, d), kOrder));
    }
    static void store4(int32_t* p, I a, I b, I c, I d) {
        store_int(p, a);
        store_int(p + W, b);
        store_int(p + 2 * W, c);
        store_int(p + 3 * W, d);
    }
    // The pack instructions saturate: to 16 bits signed, then to 8.
    static __m256i in_order(__m256i bytes) {
        return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    }
    static void store4_saturated(uint8_t* p, I a, I b, I c, I d) {
        const __m256i bytes = _mm256_packus_epi16(_mm256_packs_epi32(a.v, b.v), _mm256_packs_epi32(c.v, d.v));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), in_order(bytes));
    }
    static void store4_saturated(int8_t* p, I a, I b, I c, I d) {
        const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(a.v, b.v), _mm256_packs_epi32(c.v, d.v));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), in_order(bytes));
    }
    static __m256i saturated_sum(I a, I b, int32_t offset) {
        return _mm256_adds_epi16(_mm256_packs_epi32(a.v, b.v), _mm256_set1_epi16(static_cast<int16_t>(offset)));
    }
    static void store4_offset(uint8_t* p, I a, I b, I c, I d, int32_t offset, uint8_t low) {
        const __m256i bytes = _mm256_packus_epi16(saturated_sum(a, b, offset), saturated_sum(c, d, offset));
        const __m256i least = _mm256_set1_epi8(static_cast<char>(low));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), in_order(_mm256_max_epu8(bytes, least)));
    }
    static void store4_offset(int8_t* p, I a, I b, I c, I d, int32_t offset, int8_t low) {
        const __m256i bytes = _mm256_packs_epi16(saturated_sum(a, b, offset), saturated_sum(c, d, offset));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), in_order(_mm256_max_epi8(bytes, _mm256_set1_epi8(low))));
    }
    static void store16(uint8_t* p, const F* v, int32_t offset, int32_t lo) {
        const __m256i words = _mm256_packs_epi32(_mm256_cvtps_epi32(v[0]), _mm256_cvtps_epi32(v[1]));
        const __m256i q = _mm256_max_epi16(_mm256_adds_epi16(words, _mm256_set1_epi16(static_cast<int16_t>(offset))),
                                           _mm256_set1_epi16(static_cast<int16_t>(lo)));
        const __m256i bytes = _mm256_and_si256(q, _mm256_set1_epi16(0xFF));
        // 4-byte pieces: channels 0-3, 8-11 of the lower half, 4-7, 12-15 of the upper.
        const __m128i packed = _mm_packus_epi16(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm_shuffle_epi32(packed, 0xD8));
    }
    // 16 bits are enough after the first pack, which saturates.
    static __m256i offset16(F a, F b, int32_t offset) {
        return _mm256_adds_epi16(_mm256_packs_epi32(_mm256_cvtps_epi32(a), _mm256_cvtps_epi32(b)),
                                 _mm256_set1_epi16(static_cast<int16_t>(offset)));
    }
    static __m256i clamped16(F a, F b, int32_t offset, int32_t lo, int32_t hi) {
        return _mm256_max_epi16(_mm256_min_epi16(offset16(a, b, offset), _mm256_set1_epi16(static_cast<int16_t>(hi))),
                                _mm256_set1_epi16(static_cast<int16_t>(lo)));
    }
    static void store32(uint8_t* p, __m256i low, __m256i high) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), in_order(_mm256_packus_epi16(low, high)));
    }
    static void store32(int8_t* p, __m256i low, __m256i high) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), in_order(_mm256_packs_epi16(low, high)));
    }
    template <class T>
    static void store4_clamped(T* p, F a, F b, F c, F d, int32_t offset, int32_t lo, int32_t hi) {
        store32(p, clamped16(a, b, offset, lo, hi), clamped16(c, d, offset, lo, hi));
    }
    template <class T>
    static void store4_offset(T* p, F a, F b, F c, F d, int32_t offset) {
        store32(p, offset16(a, b, offset), offset16(c, d, offset));
    }
    static __m256i flipped(const uint8_t* p, uint8_t flip) {
        return _mm256_xor_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
                                _mm256_set1_epi8(static_cast<char>(flip)));
    }
    static I add_bytes(I sum, const uint8_t* p, uint8_t flip) {
        return {_mm256_add_epi32(sum.v, _mm256_sad_epu8(flipped(p, flip), _mm256_setzero_si256()))};
    }
    static I add_squares(I sum, const uint8_t* p, uint8_t flip) {
        const __m256i x = flipped(p, flip), zero = _mm256_setzero_si256();
        const __m256i low = _mm256_unpacklo_epi8(x, zero), high = _mm256_unpackhi_epi8(x, zero);
        return {_mm256_add_epi32(sum.v, _mm256_add_epi32(_mm256_madd_epi16(low, low), _mm256_madd_epi16(high, high)))};
    }
    static int32_t reduce_add(I a) {
        const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(a.v), _mm256_extracti128_si256(a.v, 1));
        const __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4E));
        return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xB1)));
    }
    static float reduce_add(F a) {
        const __m128 four = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
        const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
        return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
    }
    static float reduce_min(F a) {
        __m128 m = _mm_min_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
        m = _mm_min_ps(m, _mm_movehl_ps(m, m));
        return _mm_cvtss_f32(_mm_min_ss(m, _mm_movehdup_ps(m)));
    }
    static float reduce_max(F a) {
        __m128 m = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
        m = _mm_max_ps(m, _mm_movehl_ps(m, m));
        return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
    }
};

}  // namespace
}  // namespace zeropoint
