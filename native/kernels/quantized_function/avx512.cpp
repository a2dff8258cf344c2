// With a curve, the function itself is computed only where polynomials are not certain of the byte.
#include "kernels/simd/avx512.h"
#include "kernels/quantized_function/template.h"

namespace zeropoint {
namespace {

constexpr float kMagic = FunctionCurve::kMagic;

// Blocks of 64 bytes. Everything that they share is in registers: of the tables, halves of 16 parts.
template <FloatFunction kFunction, class T>
class CurveBlocks {
public:
    static constexpr int64_t kBlock = 64;

    explicit CurveBlocks(const QuantizedFunctionArgs& a)
        : args_(&a),
          last_(_mm512_set1_ps(a.curve->last)),
          rate_(_mm512_set1_ps(a.curve->rate)),
          certain_(_mm512_set1_ps(a.curve->certain)),
          with_zero_point_(_mm512_set1_ps(kMagic + static_cast<float>(a.zero_point + kShift))),
          lo_(_mm512_set1_epi8(static_cast<char>(a.lo + kShift))),
          hi_(_mm512_set1_epi8(static_cast<char>(a.hi + kShift))) {
        static_assert(FunctionCurve::kParts == 32 && FunctionCurve::kTerms == 4);
#pragma GCC unroll 4
        for (int k = 0; k < 4; ++k) {
            low_[k] = _mm512_load_ps(a.curve->term[k]);
            high_[k] = _mm512_load_ps(a.curve->term[k] + 16);
        }
    }

    __attribute__((always_inline)) void operator()(const float* x, T* y) const {
        __m512i q[4];
        __m512 away = _mm512_setzero_ps();
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            const __m512 steps = value(_mm512_loadu_ps(x + i * 16));
            const __m512 rounded = _mm512_add_ps(steps, with_zero_point_);
            q[i] = _mm512_castps_si512(rounded);
            constexpr int kLargestSize = 0xB;
            away = _mm512_range_ps(away, _mm512_sub_ps(steps, _mm512_sub_ps(rounded, with_zero_point_)), kLargestSize);
        }
        if (__builtin_expect(_mm512_cmp_ps_mask(away, certain_, _CMP_LE_OQ) != 0xFFFF, 0)) return decide(*args_, x, y);
        const __m512i words =
            _mm512_setr_epi32(0x20000, 0x60004, 0xA0008, 0xE000C, 0x120010, 0x160014, 0x1A0018, 0x1E001C, 0x220020,
                              0x260024, 0x2A0028, 0x2E002C, 0x320030, 0x360034, 0x3A0038, 0x3E003C);
        // The lower halves of all 32 bits; packing works within 128 bits.
        const __m512i a = _mm512_permutex2var_epi16(q[0], words, q[1]),
                      b = _mm512_permutex2var_epi16(q[2], words, q[3]);
        const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
        __m512i bytes = _mm512_min_epu8(_mm512_max_epu8(_mm512_packus_epi16(a, b), lo_), hi_);
        if constexpr (kShift != 0) bytes = _mm512_xor_si512(bytes, _mm512_set1_epi8(static_cast<char>(kShift)));
        _mm512_storeu_si512(y, _mm512_permutexvar_epi64(order, bytes));
    }

private:
    static constexpr int kShift = std::is_signed_v<T> ? 128 : 0;

    __attribute__((always_inline)) __m512 value(__m512 x) const {
        const __m512 magic = _mm512_set1_ps(kMagic);
        const __m512 place = _mm512_fmadd_ps(_mm512_min_ps(x, last_), rate_, magic);
        const __m512 r = _mm512_fmsub_ps(x, rate_, _mm512_sub_ps(place, magic));
        const auto term = [&](int k) __attribute__((always_inline)) {
            return _mm512_permutex2var_ps(low_[k], _mm512_castps_si512(place), high_[k]);
        };
        const __m512 v = _mm512_fmadd_ps(_mm512_fmadd_ps(term(3), r, term(2)), r, term(1));
        return _mm512_fmadd_ps(v, r, term(0));
    }
    static __attribute__((noinline)) void decide(const QuantizedFunctionArgs& a, const float* x, T* y) {
        ExactBlocks<Avx512, kFunction, T> exact(a);
        exact(x, y);
    }

    const QuantizedFunctionArgs* args_;
    __m512 low_[4], high_[4];
    __m512 last_, rate_, certain_, with_zero_point_;
    __m512i lo_, hi_;
};

template <FloatFunction kFunction, class T>
struct Visit {
    static void run(const QuantizedFunctionArgs& a, int64_t begin, int64_t end) {
        if (a.curve != nullptr) return each_block<T>(a, begin, end, CurveBlocks<kFunction, T>(a));
        each_block<T>(a, begin, end, ExactBlocks<Avx512, kFunction, T>(a));
    }
};

}  // namespace

void quantized_function_avx512(const QuantizedFunctionArgs& a, int64_t begin, int64_t end) {
    each_type<Visit>(a, begin, end);
}

}  // namespace zeropoint
