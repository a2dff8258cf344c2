// cache_attention for any vector type V of simd/, and a function that adds up products of bytes.
#pragma once

#include "kernels/activations.h"
#include "kernels/cache_attention/cache_attention.h"
#include "kernels/cache_attention/round_row.h"
#include "kernels/float_softmax/template.h"

namespace zeropoint {
namespace {

// Some heads of rounded queries, `dim` bytes apart, times the keys of a block.
struct ByteQueries {
    const int8_t* q = nullptr;
    int64_t dim = 0;
    const int32_t* sums = nullptr;  // of each head
};
// Products(queries, heads, block, sums): for each of `heads` heads, 4 at most, and 16 positions the sum over the head.
using ByteProducts = void (*)(const ByteQueries& queries, int64_t heads, const int8_t* block, int32_t* sums);
constexpr int64_t kHeadsTogether = 4;

inline void plain_byte_products(const ByteQueries& queries, int64_t heads, const int8_t* block, int32_t* sums) {
    for (int64_t i = 0; i < heads * kCacheBlock; ++i) sums[i] = 0;
    for (int64_t h = 0; h < heads; ++h)
        for (int64_t d = 0; d < queries.dim; ++d)
            for (int64_t p = 0; p < kCacheBlock; ++p)
                sums[h * kCacheBlock + p] += static_cast<int32_t>(queries.q[h * queries.dim + d]) *
                                             static_cast<int32_t>(block[(d / 4 * kCacheBlock + p) * 4 + d % 4]);
}

template <class V>
typename V::F cached_numbers(const int8_t* p) {
    return V::to_float(V::load_int(p));
}
template <class V>
typename V::F cached_numbers(const uint16_t* p) {
    return V::load_half(p);
}
template <class V>
typename V::F cached_numbers(const float* p) {
    return V::load(p);
}

template <class V, class T, ByteProducts kProducts>
struct CacheAttention {
    using F = typename V::F;
    static constexpr bool kBytes = sizeof(T) == 1;
    static constexpr int kParts = static_cast<int>(kCacheBlock) / V::W;

    const CacheAttentionArgs& a;
    const int64_t first = a.begin / kCacheBlock * kCacheBlock, columns = cache_scores(a.begin, a.end);
    float* const scores = a.scratch;                                           // (heads, columns)
    int8_t* const q8 = reinterpret_cast<int8_t*>(scores + a.heads * columns);  // (heads, dim)
    float* const factors = scores + a.heads * (columns + a.dim);
    int32_t* const q_sums = reinterpret_cast<int32_t*>(factors + a.heads);

    void keep(float* to, F sums, float factor) const {
        F x = V::mul(sums, V::set(factor));
        if (a.cap != 0) x = V::mul(Activations<V>::tanh(V::mul(x, V::set(1.0f / a.cap))), V::set(a.cap));
        V::store(to, x);
    }

    // Scores of some heads for the positions of a block.
    void score_bytes(const int8_t* block, int64_t n, int64_t h, int64_t heads) const {
        alignas(64) int32_t sums[kHeadsTogether * kCacheBlock];
        kProducts({q8 + h * a.dim, a.dim, q_sums + h}, heads, block, sums);
        for (int64_t k = 0; k < heads; ++k)
            for (int i = 0; i < kParts; ++i) {
                const F sum = V::to_float(V::load_int(sums + k * kCacheBlock + i * V::W));
                keep(scores + (h + k) * columns + (n - first) + i * V::W,
                     V::mul(sum, V::load(a.k_scale + n + i * V::W)), factors[h + k]);
            }
    }
    void score_floats(const T* block, int64_t n, int64_t h) const {
        F sums[kParts];
        for (F& sum : sums) sum = V::set(0.0f);
        const float* q = a.q + h * a.dim;
        for (int64_t d = 0; d < a.dim; ++d)
            for (int i = 0; i < kParts; ++i)
                sums[i] = V::fma(V::set(q[d]), cached_numbers<V>(block + d * kCacheBlock + i * V::W), sums[i]);
        for (int i = 0; i < kParts; ++i) keep(scores + h * columns + (n - first) + i * V::W, sums[i], a.scale);
    }
    void score() const {
        for (int64_t n = first; n < a.end; n += kCacheBlock) {
            const T* block = static_cast<const T*>(a.k) + n * a.dim;
            if constexpr (kBytes)
                for (int64_t h = 0; h < a.heads; h += kHeadsTogether)
                    score_bytes(block, n, h, a.heads - h < kHeadsTogether ? a.heads - h : kHeadsTogether);
            else
                for (int64_t h = 0; h < a.heads; ++h) score_floats(block, n, h);
        }
    }

    // Some heads, some vectors of numbers from d on.
    template <int kHeads, int kVectors>
    void add_values(int64_t h, int64_t d) const {
        F sums[kHeads][kVectors];
        for (auto& row : sums)
            for (F& sum : row) sum = V::set(0.0f);
        const float* weights = scores + h * columns - first;
        const T* v = static_cast<const T*>(a.v) + d;
        for (int64_t n = a.begin; n < a.end; ++n) {
            F values[kVectors];
            for (int i = 0; i < kVectors; ++i) values[i] = cached_numbers<V>(v + n * a.dim + i * V::W);
            for (int k = 0; k < kHeads; ++k) {
                const F weight = V::set(weights[k * columns + n]);
                for (int i = 0; i < kVectors; ++i) sums[k][i] = V::fma(weight, values[i], sums[k][i]);
            }
        }
        for (int k = 0; k < kHeads; ++k)
            for (int i = 0; i < kVectors; ++i)
                V::store(a.y + (h + k) * a.dim + d + i * V::W, V::mul(sums[k][i], V::set(factors[h + k])));
    }
    template <int kHeads>
    void add_all_values(int64_t h) const {
        // So many sums stay in registers.
        constexpr int kVectors = kHeads == 8 ? 2 : 4;
        int64_t d = 0;
        for (; d + kVectors * V::W <= a.dim; d += kVectors * V::W) add_values<kHeads, kVectors>(h, d);
        for (; d < a.dim; d += V::W) add_values<kHeads, 1>(h, d);
    }

    void run() const {
        constexpr int kTogether = V::W >= 16 ? 8 : 2, kSome = V::W >= 16 ? 3 : 1;
        if constexpr (kBytes)
            for (int64_t h = 0; h < a.heads; ++h) {
                factors[h] = round_row(a.q + h * a.dim, a.dim, q8 + h * a.dim) * a.scale;
                q_sums[h] = 0;
                for (int64_t d = 0; d < a.dim; ++d) q_sums[h] += q8[h * a.dim + d];
            }
        score();
        const int64_t count = a.end - a.begin;
        for (int64_t h = 0; h < a.heads; ++h) {
            float* row = scores + h * columns + (a.begin - first);
            const FloatSoftmaxRow<V> softmax{row, row, count};
            factors[h] = softmax.exponentials_of_row(softmax.largest(), false);
            if constexpr (kBytes) {
                const float* scale = a.v_scale + a.begin;
                int64_t i = 0;
                for (; i + V::W <= count; i += V::W) V::store(row + i, V::mul(V::load(row + i), V::load(scale + i)));
                for (; i < count; ++i) row[i] *= scale[i];
            }
        }
        int64_t h = 0;
        for (; h + kTogether <= a.heads; h += kTogether) add_all_values<kTogether>(h);
        for (; h + kSome <= a.heads; h += kSome) add_all_values<kSome>(h);
        for (; h < a.heads; ++h) add_all_values<1>(h);
    }
};

template <class V, ByteProducts kProducts>
void cache_attention_with(const CacheAttentionArgs& a) {
    switch (a.type) {
        case CacheType::s8: return CacheAttention<V, int8_t, kProducts>{a}.run();
        case CacheType::f16: return CacheAttention<V, uint16_t, kProducts>{a}.run();
        case CacheType::f32: return CacheAttention<V, float, kProducts>{a}.run();
    }
}

}  // namespace
}  // namespace zeropoint
