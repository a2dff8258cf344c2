// 8-bit products with pairs of int16: values without their zero points, which fit, and sums of two products, which fit
// in int32. Pairs is a vector type V with add_pairs(sum, pair, weights): 8 lanes, each plus a pair times its own pair.
#pragma once

#include "kernels/attention/template.h"

#include <cstring>

namespace zeropoint {
namespace {

template <class V, class Pairs>
class CenteredProducts {
public:
    static constexpr bool kWholeGroups = false;

    CenteredProducts(const AttentionArgs& a, Pieces& pieces)
        : a_(a),
          k_pairs_((a.depth + 1) / 2),
          v_pairs_((a.columns + 1) / 2),
          k_(pieces.take<int16_t>(round_up(a.columns, kLanes) * k_pairs_ * 2)),
          v_(pieces.take<int16_t>(round_up(a.width, kLanes) * v_pairs_ * 2)),
          q_(pieces.take<int16_t>(AttentionArgs::kRows * k_pairs_ * 2)),
          p_(pieces.take<int16_t>(AttentionArgs::kRows * v_pairs_ * 2)),
          stride_(round_up(a.columns, 64)),
          bytes_(pieces.take<uint8_t>(AttentionArgs::kRows * stride_)) {}

    void pack(int64_t head) {
        const uint8_t *k = a_.k.x + a_.place(a_.k.heads, head), *v = a_.v.x + a_.place(a_.v.heads, head);
        std::memset(k_, 0, static_cast<size_t>(round_up(a_.columns, kLanes) * k_pairs_ * 2) * sizeof(int16_t));
        std::memset(v_, 0, static_cast<size_t>(round_up(a_.width, kLanes) * v_pairs_ * 2) * sizeof(int16_t));
        for (int64_t n = 0; n < a_.columns; ++n) {
            int16_t* to = k_ + n / kLanes * kLanes * k_pairs_ * 2 + n % kLanes * 2;
            for (int64_t d = 0; d < a_.depth; ++d)
                to[d / 2 * kLanes * 2 + d % 2] = centered(a_.k.type, a_.k.zero_point, k[n * a_.k.row + d]);
            to = v_ + n / 2 * kLanes * 2 + n % 2;
            for (int64_t e = 0; e < a_.width; ++e)
                to[e / kLanes * kLanes * v_pairs_ * 2 + e % kLanes * 2] =
                    centered(a_.v.type, a_.v.zero_point, v[n * a_.v.row + e]);
        }
    }
    void scores(int64_t head, int64_t row, int64_t count, float* to, int64_t stride) {
        for (int64_t i = 0; i < count; ++i)
            center(a_.q.x + a_.place(a_.q.heads, head) + (row + i) * a_.q.row, a_.depth, a_.q.type, a_.q.zero_point,
                   q_ + i * k_pairs_ * 2);
        const F multiplier = V::set(a_.score_multiplier), scale = V::set(a_.score_scale);
        const float least = static_cast<float>(least_of(a_.q.type) - a_.score_zero_point);
        const F low = V::set(least), high = V::set(least + 255.0f);
        multiply(q_, k_pairs_, k_, a_.columns, count, [&](int64_t i, int64_t n, I sum) {
            const F v = V::min(V::mul(V::to_float(sum), multiplier), high);
            V::store(to + i * stride + n, V::mul(V::max(V::round(v), low), scale));
        });
    }
    bool shares(int64_t, int64_t, float*, int64_t) { return false; }
    uint8_t* share(int64_t i) { return bytes_ + i * stride_; }
    void take_shares(int64_t count) {
        for (int64_t i = 0; i < count; ++i)
            center(share(i), a_.columns, a_.share_type, a_.share_zero_point, p_ + i * v_pairs_ * 2);
    }
    void products(int64_t head, int64_t row, int64_t count) {
        const F multiplier = V::set(a_.multiplier);
        const int32_t low = least_of(a_.share_type);
        const F high = V::set(static_cast<float>(low + 255 - a_.zero_point));
        const F least = V::set(static_cast<float>(low - a_.zero_point));
        multiply(p_, v_pairs_, v_, a_.width, count, [&](int64_t i, int64_t e, I sum) {
            const F v = V::max(V::round(V::min(V::mul(V::to_float(sum), multiplier), high)), least);
            int32_t lanes[kLanes];
            V::store_int(lanes, V::to_int(v));
            uint8_t* y = a_.y + a_.place(a_.y_heads, head) + (row + i) * a_.y_row;
            for (int64_t k = 0; k < kLanes && e + k < a_.width; ++k)
                y[e + k] = static_cast<uint8_t>(lanes[k] + a_.zero_point);
        });
    }

private:
    using F = typename V::F;
    using I = typename V::I;
    static constexpr int64_t kLanes = 8;
    static_assert(V::W == kLanes);

    static int16_t centered(IntType type, int32_t zero_point, uint8_t byte) {
        return static_cast<int16_t>((type == IntType::s8 ? static_cast<int8_t>(byte) : byte) - zero_point);
    }
    // A row of an odd length ends with a zero.
    static void center(const uint8_t* x, int64_t n, IntType type, int32_t zero_point, int16_t* to) {
        if (type == IntType::u8)
            for (int64_t i = 0; i < n; ++i) to[i] = static_cast<int16_t>(x[i] - zero_point);
        else
            for (int64_t i = 0; i < n; ++i) to[i] = static_cast<int16_t>(static_cast<int8_t>(x[i]) - zero_point);
        if (n % 2 != 0) to[n] = 0;
    }
    // done(i, n, sums) for `count` rows x and eight columns from n on.
    template <class Done>
    static void multiply(const int16_t* x, int64_t pairs, const int16_t* w, int64_t columns, int64_t count,
                         const Done& done) {
        for (int64_t n = 0; n < columns; n += kLanes, w += kLanes * pairs * 2) {
            if (count == AttentionArgs::kRows)
                tile<AttentionArgs::kRows>(x, pairs, w, n, 0, done);
            else
                for (int64_t i = 0; i < count; ++i) tile<1>(x + i * pairs * 2, pairs, w, n, i, done);
        }
    }
    template <int kRows, class Done>
    static void tile(const int16_t* x, int64_t pairs, const int16_t* w, int64_t n, int64_t first, const Done& done) {
        I sum[kRows];
        for (I& s : sum) s = V::set_int(0);
        for (int64_t c = 0; c < pairs; ++c)
            for (int i = 0; i < kRows; ++i) {
                int32_t pair;
                std::memcpy(&pair, x + (i * pairs + c) * 2, sizeof pair);
                sum[i] = Pairs::add_pairs(sum[i], pair, w + c * kLanes * 2);
            }
        for (int i = 0; i < kRows; ++i) done(first + i, n, sum[i]);
    }

    const AttentionArgs& a_;
    int64_t k_pairs_, v_pairs_;
    int16_t *k_, *v_, *q_, *p_;
    int64_t stride_;
    uint8_t* bytes_;
};

}  // namespace
}  // namespace zeropoint
