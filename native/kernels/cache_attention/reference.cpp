// The specification of cache_attention, one element at a time. It is never optimized.
#include "kernels/cache_attention/cache_attention.h"

#include "kernels/activations_reference.h"
#include "kernels/cache_attention/round_row.h"
#include "kernels/half.h"
#include "kernels/simd/fused.h"

#include <cmath>
#include <limits>
#include <vector>

namespace zeropoint {
namespace {

float number_at(const void* data, CacheType type, int64_t at) {
    switch (type) {
        case CacheType::s8: return static_cast<float>(static_cast<const int8_t*>(data)[at]);
        case CacheType::f16: return from_half(static_cast<const uint16_t*>(data)[at]);
        case CacheType::f32: return static_cast<const float*>(data)[at];
    }
    return 0;
}

int64_t key_place(const CacheAttentionArgs& a, int64_t n, int64_t d) {
    const int64_t p = n % kCacheBlock;
    return n / kCacheBlock * kCacheBlock * a.dim +
           (a.type == CacheType::s8 ? (d / 4 * kCacheBlock + p) * 4 + d % 4 : d * kCacheBlock + p);
}

}  // namespace

void cache_attention_reference(const CacheAttentionArgs& a) {
    const bool bytes = a.type == CacheType::s8;
    const size_t count = static_cast<size_t>(a.end - a.begin);
    std::vector<float> x(count);
    std::vector<int8_t> q8(static_cast<size_t>(a.dim));
    for (int64_t h = 0; h < a.heads; ++h) {
        const float* q = a.q + h * a.dim;
        const float factor = bytes ? round_row(q, a.dim, q8.data()) * a.scale : a.scale;
        float largest = -std::numeric_limits<float>::infinity();
        for (int64_t n = a.begin; n < a.end; ++n) {
            float sum = 0;
            for (int64_t d = 0; d < a.dim; ++d) {
                const float k = number_at(a.k, a.type, key_place(a, n, d));
                sum = bytes ? sum + static_cast<float>(q8[static_cast<size_t>(d)]) * k : fused(q[d], k, sum);
            }
            if (bytes) sum *= a.k_scale[n];
            sum *= factor;
            if (a.cap != 0) sum = OneActivation::tanh(sum * (1.0f / a.cap)) * a.cap;
            x[static_cast<size_t>(n - a.begin)] = sum;
            largest = sum > largest ? sum : largest;
        }
        float lanes[16] = {};
        for (size_t i = 0; i < count; ++i) {
            x[i] = OneActivation::exp(x[i] - largest);
            lanes[i % 16] += x[i];
        }
        for (int half = 8; half > 0; half /= 2)
            for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
        const float share = 1.0f / lanes[0];
        for (int64_t d = 0; d < a.dim; ++d) {
            float y = 0;
            for (int64_t n = a.begin; n < a.end; ++n) {
                float w = x[static_cast<size_t>(n - a.begin)];
                if (bytes) w *= a.v_scale[n];
                y = fused(w, number_at(a.v, a.type, n * a.dim + d), y);
            }
            a.y[h * a.dim + d] = y * share;
        }
    }
}

}  // namespace zeropoint
