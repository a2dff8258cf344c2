// The epilogue with AVX512, on the sums of up to four neighbouring panels, from registers. See gemm.h for the formula.
#pragma once

#include "kernels/gemm/gemm.h"

#include <immintrin.h>

namespace zeropoint {
namespace {

// Not __m512i: beside an epilogue, GCC 12 keeps an array of those in memory, through the inner loop too.
using Sums = int __attribute__((vector_size(64)));

class Epilogue512 {
public:
    // The sums must have e.bias already.
    Epilogue512(const Epilogue& e, void* y, int64_t n)
        : e_(e),
          y_(y),
          n_(n),
          form_(e.z != nullptr || e.leaky() || e.after != nullptr ? Form::any
                : !e.bounded                                      ? Form::plain
                : e.type == OutputType::u8 && e.hi >= 255         ? Form::saturated
                                                                  : Form::bounded) {
        // Signed bytes are unsigned ones, shifted: one way to pack, and a flip of the highest bit.
        const int32_t shift = e.type == OutputType::s8 ? 128 : 0;
        flip_ = static_cast<char>(shift);
        zero_point_ = static_cast<int16_t>(e.zero_point + shift);
        lo_ = static_cast<char>(e.lo + shift);
        hi_ = static_cast<char>(e.hi + shift);
        high_ = static_cast<float>(e.hi - e.zero_point);
    }

    // sum[i]: the row at *y_rows[i] and kPanels panels from `panel` on.
    template <int kRows, int kPanels>
    __attribute__((always_inline)) void store(const Sums (&sum)[kRows][kPanels], int64_t panel,
                                              const int64_t* const (&y_rows)[kRows]) const {
        const int64_t first = panel * kPanel;
        if (e_.type == OutputType::f32) return to_floats<kRows, kPanels>(sum, first, y_rows);
        if (form_ == Form::saturated) return to_bytes<kRows, kPanels, Form::saturated>(sum, first, y_rows);
        if (form_ == Form::bounded) return to_bytes<kRows, kPanels, Form::bounded>(sum, first, y_rows);
        if (form_ == Form::plain) return to_bytes<kRows, kPanels, Form::plain>(sum, first, y_rows);
        to_bytes<kRows, kPanels, Form::any>(sum, first, y_rows);
    }

private:
    // plain: scale, bias and bounds; bounded: these, and Epilogue::bounded; saturated: these, and the upper bound is
    // that of unsigned bytes, which packing has anyway.
    enum class Form { saturated, bounded, plain, any };
    struct Constants {
        __m512 high;
        __m512i zero_point, lo, hi, flip;
    };
    __attribute__((always_inline)) Constants constants() const {
        return {_mm512_set1_ps(high_), _mm512_set1_epi16(zero_point_), _mm512_set1_epi8(lo_), _mm512_set1_epi8(hi_),
                _mm512_set1_epi8(flip_)};
    }

    // What a loop over rows keeps in registers: y is bytes, so after every store the compiler must think that members
    // have changed.
    struct Scale {
        const float *multiplier, *float_bias;

        __attribute__((always_inline)) __m512 operator()(Sums sum, int64_t channel) const {
            const __m512 v = _mm512_mul_ps(_mm512_cvtepi32_ps(reinterpret_cast<__m512i>(sum)),
                                           _mm512_loadu_ps(multiplier + channel));
            return _mm512_add_ps(v, _mm512_loadu_ps(float_bias + channel));
        }
    };
    __attribute__((always_inline)) __m512 scaled_twice(Sums sum, int64_t channel) const {
        const __m512 first =
            _mm512_mul_ps(_mm512_cvtepi32_ps(reinterpret_cast<__m512i>(sum)), _mm512_set1_ps(e_.first));
        const __m512 v = _mm512_mul_ps(first, _mm512_loadu_ps(e_.multiplier + channel));
        return _mm512_mul_ps(_mm512_add_ps(v, _mm512_loadu_ps(e_.float_bias + channel)),
                             _mm512_loadu_ps(e_.after + channel));
    }
    __attribute__((always_inline)) __m512 rounded_with_zero_point(__m512 v) const {
        const __m512 zero_point = _mm512_set1_ps(static_cast<float>(e_.zero_point));
        constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
        return _mm512_sub_ps(_mm512_roundscale_ps(_mm512_add_ps(v, zero_point), kNearest), zero_point);
    }
    // The upper bound is taken before the conversion, where that could overflow; what saturates in 16 bits is beyond
    // all bounds.
    template <Form kForm>
    static __attribute__((always_inline)) __m512i rounded(__m512 v, const Constants& c) {
        constexpr bool kFits = kForm == Form::bounded || kForm == Form::saturated;
        return _mm512_cvtps_epi32(kFits ? v : _mm512_min_ps(v, c.high));
    }
    static __attribute__((always_inline)) __m512i words(__m512i a, __m512i b, const Constants& c) {
        return _mm512_adds_epi16(_mm512_packs_epi32(a, b), c.zero_point);
    }
    // Packing works within 128 bits, hence the order of the results: 4 bytes of each of the four vectors, four times.
    template <Form kForm>
    static __attribute__((always_inline)) __m512i bytes(__m512i a, __m512i b, const Constants& c) {
        const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
        __m512i packed = _mm512_max_epu8(_mm512_packus_epi16(a, b), c.lo);
        if constexpr (kForm == Form::bounded) packed = _mm512_min_epu8(packed, c.hi);
        if constexpr (kForm != Form::saturated) packed = _mm512_xor_si512(packed, c.flip);
        return _mm512_permutexvar_epi32(order, packed);
    }

    template <int kRows, int kPanels, Form kForm>
    __attribute__((always_inline)) void to_bytes(const Sums (&sum)[kRows][kPanels], int64_t first,
                                                 const int64_t* const (&y_rows)[kRows]) const {
        const Constants c = constants();
        uint8_t* const y = static_cast<uint8_t*>(y_) + first;
        const int64_t left = n_ - first;
        const Scale scale{e_.multiplier + first, e_.float_bias + first};
        const bool is_leaky = kForm == Form::any && e_.leaky();
        const auto at = [&](int i, int j) __attribute__((always_inline)) {
            __m512 v = kForm == Form::any && e_.after != nullptr ? scaled_twice(sum[i][j], first + j * kPanel)
                                                                 : scale(sum[i][j], j * kPanel);
            if constexpr (kForm == Form::any) {
                if (e_.z != nullptr) v = _mm512_add_ps(v, residual(*y_rows[i] + first + j * kPanel, left - j * kPanel));
                if (is_leaky) v = leaky(v);
                if (e_.zero_point_first) v = rounded_with_zero_point(v);
            }
            return rounded<kForm>(v, c);
        };
        if constexpr (kPanels == 4) {
            const __mmask64 there = left < 64 ? (__mmask64{1} << left) - 1 : ~__mmask64{0};
#pragma GCC unroll 16
            for (int i = 0; i < kRows; ++i) {
                const __m512i row = bytes<kForm>(words(at(i, 0), at(i, 1), c), words(at(i, 2), at(i, 3), c), c);
                uint8_t* const to = y + *y_rows[i];
                if (left >= 64)
                    _mm512_storeu_si512(to, row);
                else
                    _mm512_mask_storeu_epi8(to, there, row);
            }
        } else if constexpr (kPanels == 2) {
            const __mmask32 there = left < 32 ? (__mmask32{1} << left) - 1 : ~__mmask32{0};
            const auto put = [&](int i, __m256i row) __attribute__((always_inline)) {
                uint8_t* const to = y + *y_rows[i];
                if (left >= 32)
                    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), row);
                else
                    _mm256_mask_storeu_epi8(to, there, row);
            };
#pragma GCC unroll 16
            for (int i = 0; i < kRows; i += 2) {
                const int next = i + 1 < kRows ? i + 1 : i;
                const __m512i rows = bytes<kForm>(words(at(i, 0), at(i, 1), c), words(at(next, 0), at(next, 1), c), c);
                put(i, _mm512_castsi512_si256(rows));
                if (next > i) put(next, _mm512_extracti64x4_epi64(rows, 1));
            }
        } else {
            const __mmask16 there = static_cast<__mmask16>(left < 16 ? (1u << left) - 1 : 0xFFFFu);
            const auto put = [&](int i, __m128i row) __attribute__((always_inline)) {
                if (i >= kRows) return;
                uint8_t* const to = y + *y_rows[i];
                if (left >= 16)
                    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), row);
                else
                    _mm_mask_storeu_epi8(to, there, row);
            };
#pragma GCC unroll 16
            for (int i = 0; i < kRows; i += 4) {
                const int b = i + 1 < kRows ? i + 1 : i, d = i + 2 < kRows ? i + 2 : i, f = i + 3 < kRows ? i + 3 : i;
                const __m512i rows = bytes<kForm>(words(at(i, 0), at(b, 0), c), words(at(d, 0), at(f, 0), c), c);
                put(i, _mm512_castsi512_si128(rows));
                put(i + 1, _mm512_extracti32x4_epi32(rows, 1));
                put(i + 2, _mm512_extracti32x4_epi32(rows, 2));
                put(i + 3, _mm512_extracti32x4_epi32(rows, 3));
            }
        }
    }

    __attribute__((always_inline)) __m512 leaky(__m512 v) const {
        return _mm512_mask_mul_ps(v, _mm512_cmp_ps_mask(v, _mm512_setzero_ps(), _CMP_LT_OQ), v,
                                  _mm512_set1_ps(e_.slope));
    }

    static __mmask16 lanes(int64_t left) {
        return static_cast<__mmask16>(left >= kPanel ? 0xFFFFu : left > 0 ? (1u << left) - 1 : 0u);
    }

    __attribute__((always_inline)) __m512 residual(int64_t at, int64_t left) const {
        const uint8_t* const from = static_cast<const uint8_t*>(e_.z) + at;
        const __m128i z = left >= kPanel ? _mm_loadu_si128(reinterpret_cast<const __m128i*>(from))
                                         : _mm_maskz_loadu_epi8(lanes(left), from);
        const __m512i wide = e_.z_type == IntType::s8 ? _mm512_cvtepi8_epi32(z) : _mm512_cvtepu8_epi32(z);
        const __m512i centered = _mm512_sub_epi32(wide, _mm512_set1_epi32(e_.z_zero_point));
        return _mm512_mul_ps(_mm512_cvtepi32_ps(centered), _mm512_set1_ps(e_.z_multiplier));
    }

    template <int kRows, int kPanels>
    __attribute__((always_inline)) void to_floats(const Sums (&sum)[kRows][kPanels], int64_t first,
                                                  const int64_t* const (&y_rows)[kRows]) const {
        const __m512 low = _mm512_set1_ps(e_.low), high = _mm512_set1_ps(e_.high);
        const bool is_leaky = e_.leaky();
        float* const y = static_cast<float*>(y_) + first;
        const int64_t left = n_ - first;
        const Scale scale{e_.multiplier + first, e_.float_bias + first};
#pragma GCC unroll 16
        for (int i = 0; i < kRows; ++i) {
            float* const to = y + *y_rows[i];
#pragma GCC unroll 4
            for (int j = 0; j < kPanels; ++j) {
                __m512 v = scale(sum[i][j], j * kPanel);
                if (is_leaky) v = leaky(v);
                v = _mm512_max_ps(low, _mm512_min_ps(high, v));
                if (left >= (j + 1) * kPanel)
                    _mm512_storeu_ps(to + j * kPanel, v);
                else
                    _mm512_mask_storeu_ps(to + j * kPanel, lanes(left - j * kPanel), v);
            }
        }
    }

    const Epilogue& e_;
    void* y_;
    int64_t n_;
    Form form_;
    char flip_, lo_, hi_;
    int16_t zero_point_;
    float high_;
};

}  // namespace
}  // namespace zeropoint
