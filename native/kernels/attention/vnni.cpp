// attention with vpdpbusd: u8 times s8, so that queries and shares are shifted to u8, keys and values to s8. Zero
// points remain for the sums that a product begins with, as in kernels/gemm/gemm.h:
//   sum((x - x_zp) (w - w_zp)) = sum(x w) - x_zp sum(w) - w_zp sum(x) + K x_zp w_zp
#include "kernels/simd/avx512.h"
#include "kernels/attention/template.h"

#include <cmath>
#include <limits>

namespace zeropoint {
namespace {

constexpr int64_t kLanes = 16, kTogether = 4;  // columns of a panel; bytes of a column that stand side by side

// A matrix of weights: [panel of 16 columns][depth / 4][column][depth % 4], and what the sums of each column begin
// with.
struct Panels {
    int8_t* data;
    int32_t* begin;
    int64_t columns, steps;  // steps: of four along the depth

    int64_t size() const { return steps * kLanes * kTogether; }
};

__m512i flip_of(IntType type, IntType kept) { return _mm512_set1_epi8(type == kept ? 0 : static_cast<char>(0x80)); }

// Rows become columns: out[c] has the c-th 32 bits of every row.
void transpose(const __m512i* rows, __m512i* out) {
    __m512i a[16], b[16];
    for (int i = 0; i < 16; i += 2) {
        a[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
        a[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        b[i] = _mm512_unpacklo_epi64(a[i], a[i + 2]);
        b[i + 1] = _mm512_unpackhi_epi64(a[i], a[i + 2]);
        b[i + 2] = _mm512_unpacklo_epi64(a[i + 1], a[i + 3]);
        b[i + 3] = _mm512_unpackhi_epi64(a[i + 1], a[i + 3]);
    }
    for (int i = 0; i < 4; ++i) {
        const __m512i low = _mm512_shuffle_i32x4(b[i], b[i + 4], 0x88),
                      high = _mm512_shuffle_i32x4(b[i], b[i + 4], 0xDD);
        const __m512i low2 = _mm512_shuffle_i32x4(b[i + 8], b[i + 12], 0x88),
                      high2 = _mm512_shuffle_i32x4(b[i + 8], b[i + 12], 0xDD);
        out[i] = _mm512_shuffle_i32x4(low, low2, 0x88);
        out[i + 8] = _mm512_shuffle_i32x4(low, low2, 0xDD);
        out[i + 4] = _mm512_shuffle_i32x4(high, high2, 0x88);
        out[i + 12] = _mm512_shuffle_i32x4(high, high2, 0xDD);
    }
}

// What the 16 sums of a panel begin with: x_zp (K w_zp - sum(w)).
__m512i beginning(__m512i sums, int64_t depth, int32_t x_zero_point, int32_t w_zero_point) {
    const uint32_t all = static_cast<uint32_t>(depth) * static_cast<uint32_t>(w_zero_point);
    const __m512i rest = _mm512_sub_epi32(_mm512_set1_epi32(static_cast<int32_t>(all)), sums);
    return _mm512_mullo_epi32(rest, _mm512_set1_epi32(x_zero_point));
}

// The first lanes of a vector, if so many columns are left.
inline __mmask16 lanes_before(int64_t left) {
    return left < kLanes ? static_cast<__mmask16>((1u << (left > 0 ? left : 0)) - 1) : static_cast<__mmask16>(0xFFFF);
}

// The rows of m are the columns.
void pack_rows(const uint8_t* x, const AttentionMatrix& m, int64_t depth, int32_t x_zero_point, int32_t zero_point,
               const Panels& to) {
    const __m512i flip = flip_of(m.type, IntType::s8), ones = _mm512_set1_epi8(1);
    for (int64_t n = 0; n < to.columns; n += kLanes) {
        const int64_t rows = to.columns - n < kLanes ? to.columns - n : kLanes;
        int8_t* panel = to.data + n / kLanes * to.size();
        __m512i sums = _mm512_setzero_si512();
        for (int64_t d = 0; d < depth; d += 64) {
            const __mmask64 there = depth - d < 64 ? (uint64_t{1} << (depth - d)) - 1 : ~uint64_t{0};
            const __m512i flipped = _mm512_maskz_mov_epi8(there, flip);
            __m512i in[16], out[16];
            for (int64_t i = 0; i < 16; ++i)
                in[i] = i < rows ? _mm512_xor_si512(_mm512_maskz_loadu_epi8(there, x + (n + i) * m.row + d), flipped)
                                 : _mm512_setzero_si512();
            transpose(in, out);
            for (int64_t c = 0; c < 16 && d / 4 + c < to.steps; ++c) {
                _mm512_store_si512(panel + (d / 4 + c) * 64, out[c]);
                sums = _mm512_dpbusd_epi32(sums, ones, out[c]);
            }
        }
        _mm512_store_si512(to.begin + n, beginning(sums, depth, x_zero_point, zero_point));
    }
}

// The columns of m are the columns.
void pack_columns(const uint8_t* x, const AttentionMatrix& m, int64_t depth, int32_t x_zero_point, int32_t zero_point,
                  const Panels& to) {
    const __m128i flip = _mm512_castsi512_si128(flip_of(m.type, IntType::s8));
    const __m512i ones = _mm512_set1_epi8(1);
    for (int64_t n = 0; n < to.columns; n += kLanes) {
        const int64_t left = to.columns - n;
        const __mmask16 there = lanes_before(left);
        const __m128i flipped = _mm_maskz_mov_epi8(there, flip);
        int8_t* panel = to.data + n / kLanes * to.size();
        __m512i sums = _mm512_setzero_si512();
        for (int64_t d = 0; d < depth; d += kTogether) {
            __m128i row[kTogether];
            for (int64_t i = 0; i < kTogether; ++i)
                row[i] = d + i < depth ? _mm_xor_si128(_mm_maskz_loadu_epi8(there, x + (d + i) * m.row + n), flipped)
                                       : _mm_setzero_si128();
            const __m128i low = _mm_unpacklo_epi8(row[0], row[1]), high = _mm_unpackhi_epi8(row[0], row[1]);
            const __m128i low2 = _mm_unpacklo_epi8(row[2], row[3]), high2 = _mm_unpackhi_epi8(row[2], row[3]);
            __m512i all = _mm512_castsi128_si512(_mm_unpacklo_epi16(low, low2));
            all = _mm512_inserti32x4(all, _mm_unpackhi_epi16(low, low2), 1);
            all = _mm512_inserti32x4(all, _mm_unpacklo_epi16(high, high2), 2);
            all = _mm512_inserti32x4(all, _mm_unpackhi_epi16(high, high2), 3);
            _mm512_store_si512(panel + d / kTogether * 64, all);
            sums = _mm512_dpbusd_epi32(sums, ones, all);
        }
        _mm512_store_si512(to.begin + n, beginning(sums, depth, x_zero_point, zero_point));
    }
}

// Rows of u8 that are multiplied, and what their sums begin with.
struct Operand {
    uint8_t* data;
    int64_t stride;
    int32_t begin[AttentionArgs::kRows];

    // Row i is x with flipped bits, with zeros behind it; sum(x) becomes -w_zp sum(x).
    void put(int64_t i, const uint8_t* x, int64_t n, __m512i flip, int32_t w_zero_point) {
        uint8_t* row = data + i * stride;
        __m512i sums = _mm512_setzero_si512();
        for (int64_t k = 0; k < n; k += 64) {
            const __mmask64 there = n - k < 64 ? (uint64_t{1} << (n - k)) - 1 : ~uint64_t{0};
            const __m512i bytes =
                _mm512_xor_si512(_mm512_maskz_loadu_epi8(there, x + k), _mm512_maskz_mov_epi8(there, flip));
            _mm512_store_si512(row + k, bytes);
            sums = _mm512_dpbusd_epi32(sums, bytes, _mm512_set1_epi8(1));
        }
        begin_with(i, sums, w_zero_point);
    }
    void begin_with(int64_t i, __m512i sums, int32_t w_zero_point) {
        const uint32_t sum = static_cast<uint32_t>(_mm512_reduce_add_epi32(sums));
        begin[i] = static_cast<int32_t>(0u - sum * static_cast<uint32_t>(w_zero_point));
    }
};

// Sums in this type, not in __m512i, which GCC 12 moves from register to register between products.
using Sums = int __attribute__((vector_size(64)));

// done(row, column, sums of the row) for kRows rows from `first` on and kPanels panels from `p` on.
template <int kRows, int kPanels, class Done>
__attribute__((noinline)) void tile(const Operand& x, int64_t first, const Panels& w, int64_t p, const Done& given) {
    const Done done = given;
    Sums sum[kRows][kPanels];
    const int64_t steps = w.steps, stride = x.stride, size = w.size();
    const uint8_t* row[kRows];
    const int8_t* panel[kPanels];
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) row[i] = x.data + (first + i) * stride;
#pragma GCC unroll 4
    for (int j = 0; j < kPanels; ++j) panel[j] = w.data + (p + j) * size;
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
        for (int j = 0; j < kPanels; ++j)
            sum[i][j] = (Sums)_mm512_add_epi32(_mm512_load_si512(w.begin + (p + j) * kLanes),
                                               _mm512_set1_epi32(x.begin[first + i]));
    for (int64_t c = 0; c < steps; ++c) {
        __m512i weights[kPanels];
#pragma GCC unroll 4
        for (int j = 0; j < kPanels; ++j) weights[j] = _mm512_load_si512(panel[j] + c * kLanes * kTogether);
#pragma GCC unroll 4
        for (int i = 0; i < kRows; ++i) {
            const __m512i v = _mm512_broadcastd_epi32(_mm_loadu_si32(row[i] + c * kTogether));
#pragma GCC unroll 4
            for (int j = 0; j < kPanels; ++j) sum[i][j] = (Sums)_mm512_dpbusd_epi32((__m512i)sum[i][j], v, weights[j]);
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) done(first + i, p * kLanes, sum[i]);
}

template <int kRows, class Done>
inline void panels_of(const Operand& x, int64_t first, const Panels& w, const Done& done) {
    const int64_t panels = (w.columns + kLanes - 1) / kLanes;
    int64_t p = 0;
    for (; p + 4 <= panels; p += 4) tile<kRows, 4>(x, first, w, p, done);
    if (p + 2 <= panels) {
        tile<kRows, 2>(x, first, w, p, done);
        p += 2;
    }
    if (p < panels) tile<kRows, 1>(x, first, w, p, done);
}

template <class Done>
inline void multiply(const Operand& x, int64_t count, const Panels& w, const Done& done) {
    if (count == AttentionArgs::kRows) return panels_of<AttentionArgs::kRows>(x, 0, w, done);
    for (int64_t i = 0; i < count; ++i) panels_of<1>(x, i, w, done);
}

int32_t as_u8(IntType type, int32_t zero_point) { return type == IntType::s8 ? zero_point + 128 : zero_point; }
int32_t as_s8(IntType type, int32_t zero_point) { return type == IntType::u8 ? zero_point - 128 : zero_point; }

class ShiftedProducts {
public:
    static constexpr bool kWholeGroups = true;

    ShiftedProducts(const AttentionArgs& a, Pieces& pieces)
        : a_(a),
          k_zero_point_(as_s8(a.k.type, a.k.zero_point)),
          v_zero_point_(as_s8(a.v.type, a.v.zero_point)),
          k_(panels(pieces, a.columns, a.depth)),
          v_(panels(pieces, a.width, a.columns)),
          q_(operand(pieces, a.depth)),
          p_(operand(pieces, a.columns)),
          is_plain_(is_plain()),
          is_small_(a.share_inverse < kMostSteps) {}

    void pack(int64_t head) {
        pack_rows(a_.k.x + a_.place(a_.k.heads, head), a_.k, a_.depth, as_u8(a_.q.type, a_.q.zero_point), k_zero_point_,
                  k_);
        pack_columns(a_.v.x + a_.place(a_.v.heads, head), a_.v, a_.columns, as_u8(a_.share_type, a_.share_zero_point),
                     v_zero_point_, v_);
        queries_ = a_.q.x + a_.place(a_.q.heads, head);
        results_ = a_.y + a_.place(a_.y_heads, head);
        for (int o = 0; o < a_.operation_count; ++o) masks_[o] = a_.place(a_.operations[o].heads, head);
    }
    // From here on, the head is the one that was packed last.
    void scores(int64_t, int64_t row, int64_t count, float* to, int64_t stride) {
        put_queries(row, count);
        const Score score(a_);
        multiply(q_, count, k_, [=](int64_t i, int64_t n, const auto& sums) __attribute__((always_inline)) {
            float* at = to + i * stride + n;
#pragma GCC unroll 4
            for (const Sums& sum : sums) {
                _mm512_store_ps(at, score(sum));
                at += kLanes;
            }
        });
    }
    // The shares of kRows rows from their queries on: the bytes of scores() and ScoreLine, but rows go side by side, so
    // that none waits for the end of another. False where a row is not finite, which ScoreLine knows.
    bool shares(int64_t head, int64_t row, float* x, int64_t stride) {
        if (!is_small_) return false;
        if (!is_plain_ || !are_idle(row)) {
            scores(head, row, kRows, x, stride);
            __m512 most[kRows];
            for (int64_t i = 0; i < kRows; ++i) most[i] = operate(row + i, x + i * stride);
            return exponentials<false>(x, stride, most);
        }
        put_queries(row, kRows);
        __m512 most[kRows];
        for (__m512& m : most) m = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
        const Score score(a_);
        __m512* const largest = most;
        const __m512 number = _mm512_set1_ps(number_);
        const int64_t columns = a_.columns;
        multiply(q_, kRows, k_, [=](int64_t i, int64_t n, const auto& sums) __attribute__((always_inline)) {
            __m512 m = largest[i];
            float* at = x + i * stride + n;
#pragma GCC unroll 4
            for (const Sums& sum : sums) {
                const __m512 v = _mm512_mul_ps(score(sum), number);
                m = _mm512_mask_max_ps(m, lanes_before(columns - n), v, m);
                _mm512_store_ps(at, v);
                at += kLanes;
                n += kLanes;
            }
            largest[i] = m;
        });
        return exponentials<true>(x, stride, most);
    }
    uint8_t* share(int64_t i) { return p_.data + i * p_.stride; }
    // Shares as bytes of their type become the operand.
    void take_shares(int64_t count) {
        for (int64_t i = 0; i < count; ++i)
            p_.put(i, share(i), a_.columns, flip_of(a_.share_type, IntType::u8), v_zero_point_);
    }
    void products(int64_t, int64_t row, int64_t count) {
        const __m512 multiplier = _mm512_set1_ps(a_.multiplier);
        const int32_t least = least_of(a_.share_type);
        const __m512 high = _mm512_set1_ps(static_cast<float>(least + 255 - a_.zero_point)),
                     low = _mm512_set1_ps(static_cast<float>(least - a_.zero_point));
        const __m512i zero_point = _mm512_set1_epi32(a_.zero_point);
        uint8_t* const y = results_ + row * a_.y_row;
        const int64_t y_row = a_.y_row, width = a_.width;
        multiply(p_, count, v_, [=](int64_t i, int64_t e, const auto& sums) __attribute__((always_inline)) {
#pragma GCC unroll 4
            for (const Sums& sum : sums) {
                const __m512 v =
                    Avx512::max(Avx512::min(_mm512_mul_ps(_mm512_cvtepi32_ps((__m512i)sum), multiplier), high), low);
                const __m128i bytes = _mm512_cvtepi32_epi8(_mm512_add_epi32(_mm512_cvtps_epi32(v), zero_point));
                _mm_mask_storeu_epi8(y + i * y_row + e, lanes_before(width - e), bytes);
                e += kLanes;
            }
        });
    }

private:
    static constexpr int64_t kRows = AttentionArgs::kRows;
    static constexpr float kMostSteps = 1 << 20;  // of shares, so that they are integers

    // From a sum to x = (s - score_zero_point) * score_scale.
    struct Score {
        __m512 multiplier, scale, low, high;

        explicit Score(const AttentionArgs& a)
            : multiplier(_mm512_set1_ps(a.score_multiplier)),
              scale(_mm512_set1_ps(a.score_scale)) {
            const float least = static_cast<float>(least_of(a.q.type) - a.score_zero_point);
            low = _mm512_set1_ps(least);
            high = _mm512_set1_ps(least + 255.0f);
        }
        __attribute__((always_inline)) __m512 operator()(Sums sum) const {
            const __m512 v = Avx512::min(_mm512_mul_ps(_mm512_cvtepi32_ps((__m512i)sum), multiplier), high);
            return _mm512_mul_ps(Avx512::max(Avx512::round(v), low), scale);
        }
    };

    // Scores times a number at most, but for masks that have one value for a row; and all that is computed of them is
    // finite, and powers are those of exp_inside: neither scores nor shares need their bounds then.
    bool is_plain() {
        constexpr float kMostPower = 80;
        int numbers = 0;
        for (int i = 0; i < a_.operation_count; ++i) {
            const ScoreOperation& o = a_.operations[i];
            if (o.kind == ScoreOperationKind::multiply) {
                number_ = o.number;
                ++numbers;
            } else if (!is_of_rows(o)) {
                return false;
            }
        }
        return numbers <= 1 && 255.0f * a_.score_scale * std::fabs(number_) < kMostPower;
    }
    static bool is_of_rows(const ScoreOperation& o) {
        return o.column == 0 && (o.kind == ScoreOperationKind::keep || o.kind == ScoreOperationKind::replace);
    }
    // Whether masks of rows leave kRows of them as they are.
    bool are_idle(int64_t row) const {
        for (int o = 0; o < a_.operation_count; ++o) {
            if (!is_of_rows(a_.operations[o])) continue;
            const uint8_t* const mask = static_cast<const uint8_t*>(a_.operations[o].mask) + masks_[o];
            for (int64_t i = row; i < row + kRows; ++i)
                if ((mask[i * a_.operations[o].row] != 0) != (a_.operations[o].kind == ScoreOperationKind::keep))
                    return false;
        }
        return true;
    }

    void put_queries(int64_t row, int64_t count) {
        const uint8_t* const q = queries_ + row * a_.q.row;
        // Rows are as far apart as all heads are wide: CPUs do not expect the next ones.
        constexpr int64_t kAhead = 2 * kRows;
        for (int64_t i = 0; i < count; ++i)
            __builtin_prefetch(q + (row + i + kAhead < a_.rows ? i + kAhead : i) * a_.q.row);
        for (int64_t i = 0; i < count; ++i)
            q_.put(i, q + i * a_.q.row, a_.depth, flip_of(a_.q.type, IntType::u8), k_zero_point_);
    }

    // All that is done to the scores of a row, in place: answers the largest of each lane.
    __m512 operate(int64_t row, float* x) const {
        for (int i = 0; i < a_.operation_count; ++i) {
            const ScoreOperation& o = a_.operations[i];
            const int64_t first = masks_[i] + row * o.row;
            const float* const mask = static_cast<const float*>(o.mask) + first;
            const __m512 number = _mm512_set1_ps(o.number);
            switch (o.kind) {
                case ScoreOperationKind::multiply:
                    each(x, [=](__m512 v, int64_t, __mmask16) { return _mm512_mul_ps(v, number); });
                    break;
                case ScoreOperationKind::divide:
                    each(x, [=](__m512 v, int64_t, __mmask16) { return _mm512_div_ps(v, number); });
                    break;
                case ScoreOperationKind::add:
                    each(x, [=](__m512 v, int64_t, __mmask16) { return _mm512_add_ps(v, number); });
                    break;
                case ScoreOperationKind::add_mask:
                    if (o.column == 0)
                        each(x, [=](__m512 v, int64_t, __mmask16) { return _mm512_add_ps(v, _mm512_set1_ps(*mask)); });
                    else
                        each(x, [=](__m512 v, int64_t n, __mmask16 there) {
                            return _mm512_add_ps(v, _mm512_maskz_loadu_ps(there, mask + n));
                        });
                    break;
                case ScoreOperationKind::keep:
                    each(x, [&](__m512 v, int64_t n, __mmask16 there) {
                        return _mm512_mask_mov_ps(number, is_set(o, first + n * o.column, there), v);
                    });
                    break;
                case ScoreOperationKind::replace:
                    each(x, [&](__m512 v, int64_t n, __mmask16 there) {
                        return _mm512_mask_mov_ps(v, is_set(o, first + n * o.column, there), number);
                    });
                    break;
            }
        }
        __m512 most = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
        for (int64_t n = 0; n < a_.columns; n += kLanes)
            most = _mm512_mask_max_ps(most, lanes_before(a_.columns - n), _mm512_load_ps(x + n), most);
        return most;
    }
    // x = next(x, column, columns that are there)
    template <class Next>
    __attribute__((always_inline)) void each(float* x, const Next& next) const {
        const int64_t columns = a_.columns;
        for (int64_t n = 0; n < columns; n += kLanes)
            _mm512_store_ps(x + n, next(_mm512_load_ps(x + n), n, lanes_before(columns - n)));
    }
    static __mmask16 is_set(const ScoreOperation& o, int64_t at, __mmask16 there) {
        const uint8_t* const mask = static_cast<const uint8_t*>(o.mask) + at;
        const __m128i bytes =
            o.column == 0 ? _mm_set1_epi8(static_cast<char>(*mask)) : _mm_maskz_loadu_epi8(there, mask);
        return _mm_test_epi8_mask(bytes, bytes);
    }

    // From powers, and the largest of each lane, to the operand; false where these are not finite.
    template <bool kIsPlain>
    __attribute__((noinline)) bool exponentials(float* x, int64_t stride, const __m512 (&largest)[kRows]) {
        const int64_t columns = a_.columns;
        __m512 most[kRows], sum[kRows];
        bool is_finite = true;
#pragma GCC unroll 4
        for (int i = 0; i < kRows; ++i) {
            const float m = Avx512::reduce_max(largest[i]);
            is_finite = is_finite && std::fabs(m) <= std::numeric_limits<float>::max();
            most[i] = _mm512_set1_ps(m);
            sum[i] = _mm512_setzero_ps();
        }
        if (!kIsPlain && !is_finite) return false;
        for (int64_t n = 0; n < columns; n += kLanes) {
            const __mmask16 there = lanes_before(columns - n);
#pragma GCC unroll 4
            for (int i = 0; i < kRows; ++i) {
                float* const at = x + i * stride + n;
                const __m512 power = _mm512_maskz_sub_ps(there, _mm512_load_ps(at), most[i]);
                using Of = Activations<Avx512>;
                const __m512 e = _mm512_maskz_mov_ps(there, kIsPlain ? Of::exp_inside(power) : Of::exp(power));
                _mm512_store_ps(at, e);
                sum[i] = _mm512_add_ps(sum[i], e);
            }
        }
        float factor[kRows];
#pragma GCC unroll 4
        for (int i = 0; i < kRows; ++i) {
            factor[i] = 1.0f / Avx512::reduce_add(sum[i]);
            is_finite = is_finite && factor[i] == factor[i];
        }
        if (!kIsPlain && !is_finite) return false;
        put_shares(x, stride, factor);
        return true;
    }
    // Bytes as kernels/gemm/epilogue_avx512.h packs them, shifted to u8.
    __attribute__((always_inline)) void put_shares(const float* x, int64_t stride, const float (&multipliers)[kRows]) {
        const int32_t shift = a_.share_type == IntType::s8 ? 128 : 0;
        const __m512 inverse = _mm512_set1_ps(a_.share_inverse);
        __m512 factor[kRows];
        __m512i sums[kRows];
#pragma GCC unroll 4
        for (int i = 0; i < kRows; ++i) {
            factor[i] = _mm512_set1_ps(multipliers[i]);
            sums[i] = _mm512_setzero_si512();
        }
        const __m512i zero_point = _mm512_set1_epi16(static_cast<int16_t>(a_.share_zero_point + shift));
        const __m512i low = _mm512_set1_epi8(static_cast<char>(a_.share_low + shift)),
                      high = _mm512_set1_epi8(static_cast<char>(a_.share_high + shift));
        const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
        const auto steps = [&](int i, const float* at) __attribute__((always_inline)) {
            return _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_mul_ps(_mm512_load_ps(at), factor[i]), inverse));
        };
        const auto words = [&](int i, const float* at) __attribute__((always_inline)) {
            return _mm512_adds_epi16(_mm512_packs_epi32(steps(i, at), steps(i, at + kLanes)), zero_point);
        };
        const int64_t columns = a_.columns, to_stride = p_.stride;
        uint8_t* const to = p_.data;
        for (int64_t n = 0; n < columns; n += 64) {
            const int64_t left = columns - n;
            const __mmask64 there = left < 64 ? (uint64_t{1} << left) - 1 : ~uint64_t{0};
#pragma GCC unroll 4
            for (int i = 0; i < kRows; ++i) {
                const float* const at = x + i * stride + n;
                const __m512i packed = _mm512_min_epu8(
                    _mm512_max_epu8(_mm512_packus_epi16(words(i, at), words(i, at + 2 * kLanes)), low), high);
                const __m512i bytes = _mm512_maskz_mov_epi8(there, _mm512_permutexvar_epi32(order, packed));
                _mm512_store_si512(to + i * to_stride + n, bytes);
                sums[i] = _mm512_dpbusd_epi32(sums[i], bytes, _mm512_set1_epi8(1));
            }
        }
#pragma GCC unroll 4
        for (int i = 0; i < kRows; ++i) p_.begin_with(i, sums[i], v_zero_point_);
    }

    static Panels panels(Pieces& pieces, int64_t columns, int64_t depth) {
        Panels p{nullptr, nullptr, columns, (depth + kTogether - 1) / kTogether};
        const int64_t all = round_up(columns, kLanes);
        p.data = pieces.take<int8_t>(all / kLanes * p.size());
        p.begin = pieces.take<int32_t>(all);
        return p;
    }
    static Operand operand(Pieces& pieces, int64_t depth) {
        const int64_t stride = round_up(depth, 64);
        return {pieces.take<uint8_t>(AttentionArgs::kRows * stride), stride, {}};
    }

    const AttentionArgs& a_;
    int32_t k_zero_point_, v_zero_point_;
    Panels k_, v_;
    Operand q_, p_;
    float number_ = 1;  // of plain scores
    bool is_plain_, is_small_;
    int64_t masks_[AttentionArgs::kOperations] = {};  // where those of the head begin
    const uint8_t* queries_ = nullptr;                // of the head
    uint8_t* results_ = nullptr;
};

}  // namespace

void attention_vnni(const AttentionArgs& a, int64_t begin, int64_t end, uint8_t* memory) {
    attention_with<Avx512, ShiftedProducts>(a, begin, end, memory);
}

}  // namespace zeropoint
