// Attention of new tokens over a cache of keys and values: rotates queries and keys by the position of their token,
// writes keys and values to the cache, and attends. See kernels/cache_attention/cache_attention.h for the formulas and
// for how keys lie in the cache.
//
// A rotation of the pair (a, b) by an angle is (a cos - b sin, a sin + b cos), every product and sum rounded. With
// weights for it, each head of queries and of keys first is x[d] * r * weight[d], r = 1 / sqrt(mean of x^2 + eps); the
// sum of squares is float64, in order, and r rounded to float32.
#pragma once

#include "kernels/cache_attention/cache_attention.h"

#include <cstdint>

namespace zeropoint {

struct CacheAttentionForm {
    int64_t heads = 0, shared_heads = 0, dim = 0;  // shared_heads: of keys and values
    int64_t sequences = 0, context = 0;            // of the cache; context is a multiple of kCacheBlock
    CacheType type = CacheType::s8;
    int64_t rotated = 0;       // numbers of a head that are rotated, an even number
    bool interleaved = false;  // pairs are (0, 1), (2, 3), ...; else (0, rotated / 2), ...
    int64_t window = 0;        // a token sees so many positions, its own included; 0: all
    float scale = 1, cap = 0;
    const float *q_norm = nullptr, *k_norm = nullptr;  // (dim); or nullptr
    double eps = 0;

    int64_t width() const { return (heads + 2 * shared_heads) * dim; }  // of a row of queries, keys and values
    // Elements of the keys of one head of one sequence; as many as of the values.
    int64_t head_elements() const { return context * dim; }
};

// The cache: keys and values (sequences, shared_heads, context, dim), and for 8 bits scales without the last axis.
struct Cache {
    void *k = nullptr, *v = nullptr;
    float *k_scale = nullptr, *v_scale = nullptr;
};

// Tokens and the places that they take in the cache.
struct CacheTokens {
    const float* qkv = nullptr;                                // (count, width)
    const float *cosine = nullptr, *sine = nullptr;            // (count, rotated / 2)
    const int64_t *positions = nullptr, *sequences = nullptr;  // (count)
    int64_t count = 0;
};

// Throws std::invalid_argument if a token has a place outside the cache.
void require_places(const CacheAttentionForm& form, const CacheTokens& tokens);

// y is (count, heads * dim). The places were found to be inside.
void cache_attention(const CacheAttentionForm& form, const CacheTokens& tokens, const Cache& cache, float* y);

// The bytes of the places of these tokens, from the cache or to it; `kept` has place_bytes for each token.
int64_t place_bytes(const CacheAttentionForm& form);
void save_places(const CacheAttentionForm& form, const CacheTokens& tokens, const Cache& cache, uint8_t* kept);
void restore_places(const CacheAttentionForm& form, const CacheTokens& tokens, const Cache& cache, const uint8_t* kept);

}  // namespace zeropoint
