// cache_attention: the queries of one token against the keys and values of earlier ones that a cache has. Queries that
// share keys and values are taken together.
//
//   8-bit keys:  qs = max|q| * (1 / 127), q8 = q rounded as group_gemm rounds activations, in one group
//                x[n] = (float(sum over d of q8[d] * k[n][d]) * k_scale[n]) * (qs * scale)       the sum is exact
//   float keys:  x[n] = (sum over d, in order, by fma, from 0 on, of q[d] * k[n][d]) * scale
//   with a cap:  x[n] = tanh(x[n] * (1 / cap)) * cap                                    kernels/activations.h
//   e[n] = exp(x[n] - max x),  factor = 1 / sum e         as float_softmax has them
//   w[n] = e[n] * v_scale[n]                              8-bit values; else e[n]
//   y[d] = (sum over n, in order, by fma, from 0 on, of w[n] * v[n][d]) * factor
//
// for the positions n from begin to end - 1. Everything is float32 with every operation rounded.
#pragma once

#include "kernels/types.h"

namespace zeropoint {

enum class CacheType : int { s8 = 0, f16 = 1, f32 = 2 };

constexpr int64_t kCacheBlock = 16;  // positions whose keys stand side by side
constexpr int64_t kMostHead = 512;   // numbers of a head: then float(sum) is exact
constexpr int64_t kHeadMultiple = 16;

// Keys of a sequence and head are blocks of 16 positions; number d of position p of a block is, in elements, at
//   8 bits: ((d / 4) 16 + p) 4 + d % 4          float16, float32: d 16 + p
// Values are one position after the other. Behind the last position there is memory up to a whole block.
struct CacheAttentionArgs {
    const float* q = nullptr;  // (heads, dim)
    int64_t heads = 0, dim = 0;
    CacheType type = CacheType::s8;
    const void *k = nullptr, *v = nullptr;
    const float *k_scale = nullptr, *v_scale = nullptr;  // of each position; 8 bits only
    int64_t begin = 0, end = 0;
    float scale = 1;
    float cap = 0;       // 0: none
    float* y = nullptr;  // (heads, dim)
    // cache_attention_scratch(heads, dim, begin, end) floats, on a 64-byte boundary.
    float* scratch = nullptr;
};

inline int64_t cache_scores(int64_t begin, int64_t end) {
    return (end + kCacheBlock - 1) / kCacheBlock * kCacheBlock - begin / kCacheBlock * kCacheBlock;
}
inline int64_t cache_attention_scratch(int64_t heads, int64_t dim, int64_t begin, int64_t end) {
    return heads * (cache_scores(begin, end) + dim + 16);
}

using CacheAttentionFn = void (*)(const CacheAttentionArgs&);

}  // namespace zeropoint
