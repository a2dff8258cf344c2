// Where polynomials say for certain which byte a result is rounded to, the function itself is not computed: see
// curve.h.
#include "kernels/simd/avx512.h"
#include "kernels/quantized_function/curve.h"
#include "kernels/quantized_function/template.h"

#include <limits>

namespace zeropoint {

void float_function_avx512(const FloatFunctionArgs& a, int64_t begin, int64_t end);

namespace {

// Beyond -6, x times the tail of a normal distribution is below 6e-9; beyond 5.6, x is the result but for 6e-8.
const Curve* curve_of(FloatFunction function) {
    static const Curve gelu(float_function_avx512, FloatFunction::gelu, 6.0f, 1.0f);
    static const Curve gelu_tanh(float_function_avx512, FloatFunction::gelu_tanh, 6.0f, 1.0f);
    if (function == FloatFunction::gelu) return &gelu;
    if (function == FloatFunction::gelu_tanh) return &gelu_tanh;
    return nullptr;
}

// The rounding of a product with inv, of up to 2^8 steps, and of the polynomial itself: four units in the last place,
// 2^-24 each.
constexpr float kRounding = 1.0f / 8192;
// Results that are too near to the middle to be certain: at most so many, in steps, or polynomials are not worth it.
constexpr float kUncertain = 1.0f / 64;

template <FloatFunction kFunction, class T>
class CurveBlocks {
public:
    static constexpr int64_t kBlock = 64;

    CurveBlocks(const QuantizedFunctionArgs& a, const Curve& curve, float uncertain)
        : exact_(a),
          curve_(curve),
          inv_(a.inv),
          certain_(0.5f - uncertain),
          zero_point_(static_cast<int16_t>(a.zero_point + kShift)),
          lo_(static_cast<char>(a.lo + kShift)),
          hi_(static_cast<char>(a.hi + kShift)) {}

    __attribute__((always_inline)) void operator()(const float* x, T* y) const {
        __m512i q[4];
        __mmask16 certain[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) certain[i] = rounded(_mm512_loadu_ps(x + i * 16), q[i]);
        if (__builtin_expect((certain[0] & certain[1] & certain[2] & certain[3]) != 0xFFFF, 0)) {
#pragma GCC unroll 4
            for (int i = 0; i < 4; ++i)
                if (certain[i] != 0xFFFF && !decide(x + i * 16, q[i])) return exact_(x, y);
        }
        const __m512i zero_point = _mm512_set1_epi16(zero_point_);
        const __m512i low = _mm512_adds_epi16(_mm512_packs_epi32(q[0], q[1]), zero_point);
        const __m512i high = _mm512_adds_epi16(_mm512_packs_epi32(q[2], q[3]), zero_point);
        __m512i bytes = _mm512_max_epu8(_mm512_packus_epi16(low, high), _mm512_set1_epi8(lo_));
        bytes = _mm512_min_epu8(bytes, _mm512_set1_epi8(hi_));
        // Packing works within 128 bits.
        const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
        bytes = _mm512_permutexvar_epi32(order, bytes);
        if constexpr (kShift != 0) bytes = _mm512_xor_si512(bytes, _mm512_set1_epi8(static_cast<char>(kShift)));
        _mm512_storeu_si512(y, bytes);
    }

private:
    static constexpr int kShift = std::is_signed_v<T> ? 128 : 0;

    // Rounds results in steps; answers which of `asked` are certain. NaN and what is beyond an int32 is not.
    __attribute__((always_inline)) __mmask16 nearest(__mmask16 asked, __m512 steps, float certain, __m512i& q) const {
        q = _mm512_cvtps_epi32(steps);
        const __m512 away = _mm512_abs_ps(_mm512_sub_ps(steps, _mm512_cvtepi32_ps(q)));
        return _mm512_mask_cmp_ps_mask(asked, away, _mm512_set1_ps(certain), _CMP_LE_OQ);
    }
    __attribute__((always_inline)) __mmask16 rounded(__m512 x, __m512i& q) const {
        const __m512 begin = _mm512_set1_ps(curve_.begin);
        const __m512 from = _mm512_sub_ps(_mm512_max_ps(begin, x), begin);  // NaN stays
        const __m512i part = _mm512_min_epi32(_mm512_cvttps_epi32(_mm512_mul_ps(from, _mm512_set1_ps(curve_.rate))),
                                              _mm512_set1_epi32(Curve::kParts - 1));
        const __m512 r = _mm512_fmadd_ps(_mm512_cvtepi32_ps(part), _mm512_set1_ps(-curve_.part), from);
        const auto term = [&](int k) __attribute__((always_inline)) {
            return _mm512_permutex2var_ps(_mm512_load_ps(curve_.term[k]), part, _mm512_load_ps(curve_.term[k] + 16));
        };
        __m512 v = _mm512_fmadd_ps(term(4), r, term(3));
        v = _mm512_fmadd_ps(v, r, term(2));
        v = _mm512_fmadd_ps(v, r, term(1));
        v = _mm512_fmadd_ps(v, r, term(0));
        // The functions have an opinion of their own about -inf.
        const __m512 least = _mm512_set1_ps(-std::numeric_limits<float>::max());
        const __mmask16 finite = _mm512_cmp_ps_mask(x, least, _CMP_GE_OQ);
        return nearest(finite, _mm512_mul_ps(v, _mm512_set1_ps(inv_)), certain_, q);
    }
    // The function itself. False if there are results that are no integers.
    bool decide(const float* x, __m512i& q) const {
        const __m512 v = function_of<Avx512, kFunction>(_mm512_loadu_ps(x));
        return nearest(0xFFFF, _mm512_mul_ps(v, _mm512_set1_ps(inv_)), 0.5f, q) == 0xFFFF;
    }

    ExactBlocks<Avx512, kFunction, T> exact_;
    const Curve& curve_;
    float inv_, certain_;
    int16_t zero_point_;
    char lo_, hi_;
};

template <FloatFunction kFunction, class T>
struct Visit {
    static void run(const QuantizedFunctionArgs& a, int64_t begin, int64_t end) {
        if constexpr (kFunction == FloatFunction::gelu || kFunction == FloatFunction::gelu_tanh) {
            const Curve& curve = *curve_of(kFunction);
            const float uncertain = curve.error * a.inv + kRounding;
            if (uncertain <= kUncertain)
                return each_block<T>(a, begin, end, CurveBlocks<kFunction, T>(a, curve, uncertain));
        }
        each_block<T>(a, begin, end, ExactBlocks<Avx512, kFunction, T>(a));
    }
};

}  // namespace

void quantized_function_avx512(const QuantizedFunctionArgs& a, int64_t begin, int64_t end) {
    each_type<Visit>(a, begin, end);
}

}  // namespace zeropoint
