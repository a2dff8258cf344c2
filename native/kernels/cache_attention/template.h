// cache_attention for any vector type V of simd/, and a function that adds up products of bytes.
#pragma once

#include "kernels/activations.h"
#include "kernels/cache_attention/cache_attention.h"
#include "kernels/cache_attention/round_row.h"
#include "kernels/float_softmax/template.h"

namespace zeropoint {
namespace {

// Products(q, block, quads, sums): for each of 16 positions, the sum over 4 * quads numbers.
using ByteProducts = void (*)(const int8_t* q, const int8_t* block, int64_t quads, int32_t* sums);

inline void plain_byte_products(const int8_t* q, const int8_t* block, int64_t quads, int32_t* sums) {
    for (int64_t p = 0; p < kCacheBlock; ++p) sums[p] = 0;
    for (int64_t c = 0; c < quads; ++c)
        for (int64_t p = 0; p < kCacheBlock; ++p)
            for (int64_t i = 0; i < 4; ++i)
                sums[p] +=
                    static_cast<int32_t>(q[c * 4 + i]) * static_cast<int32_t>(block[(c * kCacheBlock + p) * 4 + i]);
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

    void keep(float* to, F sums, float factor) const {
        F x = V::mul(sums, V::set(factor));
        if (a.cap != 0) x = V::mul(Activations<V>::tanh(V::mul(x, V::set(1.0f / a.cap))), V::set(a.cap));
        V::store(to, x);
    }

    void score_block(const T* block, int64_t n, int64_t h) const {
        float* to = scores + h * columns + (n - first);
        if constexpr (kBytes) {
            alignas(64) int32_t sums[kCacheBlock];
            kProducts(q8 + h * a.dim, block, a.dim / 4, sums);
            for (int i = 0; i < kParts; ++i) {
                const F sum = V::to_float(V::load_int(sums + i * V::W));
                keep(to + i * V::W, V::mul(sum, V::load(a.k_scale + n + i * V::W)), factors[h]);
            }
        } else {
            F sums[kParts];
            for (F& sum : sums) sum = V::set(0.0f);
            const float* q = a.q + h * a.dim;
            for (int64_t d = 0; d < a.dim; ++d)
                for (int i = 0; i < kParts; ++i)
                    sums[i] = V::fma(V::set(q[d]), cached_numbers<V>(block + d * kCacheBlock + i * V::W), sums[i]);
            for (int i = 0; i < kParts; ++i) keep(to + i * V::W, sums[i], a.scale);
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
        int64_t d = 0;
        for (; d + 4 * V::W <= a.dim; d += 4 * V::W) add_values<kHeads, 4>(h, d);
        for (; d < a.dim; d += V::W) add_values<kHeads, 1>(h, d);
    }

    void run() const {
        constexpr int kTogether = V::W >= 16 ? 4 : 2;
        if constexpr (kBytes)
            for (int64_t h = 0; h < a.heads; ++h)
                factors[h] = round_row(a.q + h * a.dim, a.dim, q8 + h * a.dim) * a.scale;
        for (int64_t n = first; n < a.end; n += kCacheBlock)
            for (int64_t h = 0; h < a.heads; ++h) score_block(static_cast<const T*>(a.k) + n * a.dim, n, h);
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
