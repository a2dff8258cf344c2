#include "operators/cache_attention.h"

#include "cpu/machine.h"
#include "cpu/threads.h"
#include "kernels/cache_attention/round_row.h"
#include "kernels/half.h"
#include "kernels/registry.h"
#include "operators/scratch.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>

namespace zeropoint {
namespace {

int64_t element_bytes(CacheType type) { return type == CacheType::s8 ? 1 : type == CacheType::f16 ? 2 : 4; }

// Where a head of a sequence begins in the scales, and number 0 of a position.
int64_t place_of(const CacheAttentionForm& f, int64_t sequence, int64_t head) {
    return (sequence * f.shared_heads + head) * f.context;
}
// Of number d of the keys of a position, in elements from the beginning of the head.
int64_t key_place(const CacheAttentionForm& f, int64_t position, int64_t d) {
    const int64_t p = position % kCacheBlock, block = position / kCacheBlock * kCacheBlock * f.dim;
    return block + (f.type == CacheType::s8 ? (d / 4 * kCacheBlock + p) * 4 + d % 4 : d * kCacheBlock + p);
}

// Calls body(first byte of the cache, bytes): every run of neighbouring bytes of a place of one head.
template <class Body>
void each_run(const CacheAttentionForm& f, const Cache& cache, int64_t sequence, int64_t head, int64_t position,
              const Body& body) {
    const int64_t place = place_of(f, sequence, head), element = element_bytes(f.type),
                  step = f.type == CacheType::s8 ? 4 : 1;
    uint8_t* k = static_cast<uint8_t*>(cache.k) + place * f.dim * element;
    for (int64_t d = 0; d < f.dim; d += step) body(k + key_place(f, position, d) * element, step * element);
    body(static_cast<uint8_t*>(cache.v) + (place + position) * f.dim * element, f.dim * element);
    if (f.type != CacheType::s8) return;
    for (float* scale : {cache.k_scale, cache.v_scale}) body(reinterpret_cast<uint8_t*>(scale + place + position), 4);
}

// A head of queries or keys: normalized if there are weights, then rotated.
void turn(const CacheAttentionForm& f, const float* x, const float* weight, const float* cosine, const float* sine,
          float* y) {
    if (weight != nullptr) {
        double squares = 0;
        for (int64_t d = 0; d < f.dim; ++d) squares += static_cast<double>(x[d]) * static_cast<double>(x[d]);
        const float r = static_cast<float>(1.0 / std::sqrt(squares / static_cast<double>(f.dim) + f.eps));
        for (int64_t d = 0; d < f.dim; ++d) y[d] = x[d] * r * weight[d];
    } else {
        std::copy_n(x, f.dim, y);
    }
    const int64_t half = f.rotated / 2, step = f.interleaved ? 2 : 1, apart = f.interleaved ? 1 : half;
    for (int64_t i = 0; i < half; ++i) {
        const float a = y[i * step], b = y[i * step + apart];
        y[i * step] = a * cosine[i] - b * sine[i];
        y[i * step + apart] = a * sine[i] + b * cosine[i];
    }
}

void write_floats(const CacheAttentionForm& f, const Cache& cache, int64_t place, int64_t position, const float* k,
                  const float* v) {
    for (int64_t d = 0; d < f.dim; ++d) {
        const int64_t k_at = place * f.dim + key_place(f, position, d), v_at = (place + position) * f.dim + d;
        if (f.type == CacheType::f16) {
            static_cast<uint16_t*>(cache.k)[k_at] = to_half(k[d]);
            static_cast<uint16_t*>(cache.v)[v_at] = to_half(v[d]);
        } else {
            static_cast<float*>(cache.k)[k_at] = k[d];
            static_cast<float*>(cache.v)[v_at] = v[d];
        }
    }
}

// One head of all tokens, one after the other: of two at one place, the last counts.
void write_head(const CacheAttentionForm& f, const CacheTokens& tokens, const Cache& cache, int64_t head) {
    float k[kMostHead];
    int8_t q[kMostHead];
    const int64_t half = f.rotated / 2;
    for (int64_t t = 0; t < tokens.count; ++t) {
        const float* row = tokens.qkv + t * f.width() + f.heads * f.dim;
        const float* v = row + (f.shared_heads + head) * f.dim;
        turn(f, row + head * f.dim, f.k_norm, tokens.cosine + t * half, tokens.sine + t * half, k);
        const int64_t position = tokens.positions[t], place = place_of(f, tokens.sequences[t], head);
        if (f.type != CacheType::s8) {
            write_floats(f, cache, place, position, k, v);
            continue;
        }
        int8_t* keys = static_cast<int8_t*>(cache.k) + place * f.dim;
        cache.k_scale[place + position] = round_row(k, f.dim, q);
        for (int64_t d = 0; d < f.dim; d += 4) std::memcpy(keys + key_place(f, position, d), q + d, 4);
        cache.v_scale[place + position] =
            round_row(v, f.dim, static_cast<int8_t*>(cache.v) + (place + position) * f.dim);
    }
}

// The queries of a token that share a head of keys and values.
void attend(const CacheAttentionForm& f, const CacheTokens& tokens, const Cache& cache, int64_t t, int64_t head,
            float* y) {
    const int64_t sharing = f.heads / f.shared_heads, place = place_of(f, tokens.sequences[t], head),
                  element = element_bytes(f.type), half = f.rotated / 2;
    CacheAttentionArgs a;
    a.heads = sharing;
    a.dim = f.dim;
    a.type = f.type;
    a.end = tokens.positions[t] + 1;
    a.begin = f.window > 0 ? std::max<int64_t>(0, a.end - f.window) : 0;
    a.k = static_cast<const uint8_t*>(cache.k) + place * f.dim * element;
    a.v = static_cast<const uint8_t*>(cache.v) + place * f.dim * element;
    if (f.type == CacheType::s8) {
        a.k_scale = cache.k_scale + place;
        a.v_scale = cache.v_scale + place;
    }
    a.scale = f.scale;
    a.cap = f.cap;
    struct Memory {};
    const int64_t numbers = cache_attention_scratch(sharing, f.dim, a.begin, a.end), turned = sharing * f.dim;
    float* memory = reinterpret_cast<float*>(scratch_of<Memory>(static_cast<size_t>(numbers + turned) * sizeof(float)));
    const float* q = tokens.qkv + t * f.width() + head * turned;
    for (int64_t h = 0; h < sharing; ++h)
        turn(f, q + h * f.dim, f.q_norm, tokens.cosine + t * half, tokens.sine + t * half, memory + h * f.dim);
    a.q = memory;
    a.scratch = memory + turned;
    a.y = y + t * f.heads * f.dim + head * turned;
    kernels().cache_attention(a);
}

}  // namespace

void require_places(const CacheAttentionForm& f, const CacheTokens& tokens) {
    for (int64_t t = 0; t < tokens.count; ++t) {
        const int64_t position = tokens.positions[t], sequence = tokens.sequences[t];
        if (position < 0 || position >= f.context)
            throw std::invalid_argument("cache_attention: position " + std::to_string(position) +
                                        " is outside a cache for " + std::to_string(f.context) + " tokens");
        if (sequence < 0 || sequence >= f.sequences)
            throw std::invalid_argument("cache_attention: sequence " + std::to_string(sequence) +
                                        " is outside a cache for " + std::to_string(f.sequences));
    }
}

void cache_attention(const CacheAttentionForm& f, const CacheTokens& tokens, const Cache& cache, float* y) {
    const int64_t writes = tokens.count * f.dim;
    parallel_for(f.shared_heads, std::max<int64_t>(1, worth_elements(32) / std::max<int64_t>(writes, 1)),
                 [&](int64_t begin, int64_t end) {
                     for (int64_t head = begin; head < end; ++head) write_head(f, tokens, cache, head);
                 });
    int64_t most = 0;
    for (int64_t t = 0; t < tokens.count; ++t) most = std::max(most, tokens.positions[t] + 1);
    if (f.window > 0) most = std::min(most, f.window);
    const int64_t macs = f.heads / f.shared_heads * f.dim * most;
    // All tokens of a head, then those of the next: keys and values stay in the cache of the core.
    parallel_for(f.shared_heads * tokens.count, std::max<int64_t>(1, kWorthFloatMacs / 4 / std::max<int64_t>(macs, 1)),
                 [&](int64_t begin, int64_t end) {
                     for (int64_t i = begin; i < end; ++i)
                         attend(f, tokens, cache, i % tokens.count, i / tokens.count, y);
                 });
}

int64_t place_bytes(const CacheAttentionForm& f) {
    return f.shared_heads * (2 * f.dim * element_bytes(f.type) + (f.type == CacheType::s8 ? 8 : 0));
}

void save_places(const CacheAttentionForm& f, const CacheTokens& tokens, const Cache& cache, uint8_t* kept) {
    for (int64_t t = 0; t < tokens.count; ++t)
        for (int64_t head = 0; head < f.shared_heads; ++head)
            each_run(f, cache, tokens.sequences[t], head, tokens.positions[t], [&](uint8_t* at, int64_t bytes) {
                std::memcpy(kept, at, static_cast<size_t>(bytes));
                kept += bytes;
            });
}

void restore_places(const CacheAttentionForm& f, const CacheTokens& tokens, const Cache& cache, const uint8_t* kept) {
    for (int64_t t = 0; t < tokens.count; ++t)
        for (int64_t head = 0; head < f.shared_heads; ++head)
            each_run(f, cache, tokens.sequences[t], head, tokens.positions[t], [&](uint8_t* at, int64_t bytes) {
                std::memcpy(at, kept, static_cast<size_t>(bytes));
                kept += bytes;
            });
}

}  // namespace zeropoint
