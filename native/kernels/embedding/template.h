// embedding for any vector type V of simd/. A bag is done in blocks of a few vectors of columns, whose sums stay in
// registers over all its rows; the first block fetches the rows, the others find them in the cache.
#pragma once

#include "kernels/embedding/embedding.h"

#include <cstring>
#include <limits>

namespace zeropoint {
namespace {

template <class V, int kBits>
struct EmbeddingTable {
    static constexpr int64_t kAhead = 16;  // rows between the one in use and the one that is fetched
    const EmbeddingArgs& a;
    const int64_t value_bytes = a.value_bytes(), row_bytes = a.row_bytes();
    // A rest of more than half a line is more likely than not to reach into another one.
    const bool reaches_on = (row_bytes - 1) % 64 >= 32;
    const int64_t* const picks_end = a.picks + (a.picks_end - a.picks_begin);

    explicit EmbeddingTable(const EmbeddingArgs& args) : a(args) {}

    // Always inline: gcc drops calls of a function that does nothing but prefetch. The row number is not checked yet:
    // prefetching any address is harmless, computing one must not overflow.
    __attribute__((always_inline)) inline void fetch(const int64_t* pick) const {
        if (pick >= picks_end) return;
        const uintptr_t row =
            reinterpret_cast<uintptr_t>(a.table) + static_cast<uintptr_t>(*pick) * static_cast<uintptr_t>(row_bytes);
        for (uintptr_t byte = 0; byte < static_cast<uintptr_t>(row_bytes); byte += 64)
            __builtin_prefetch(reinterpret_cast<const void*>(row + byte));
        if (reaches_on) __builtin_prefetch(reinterpret_cast<const void*>(row + static_cast<uintptr_t>(row_bytes - 1)));
    }
    float scale(const uint8_t* row) const { return parameter(row, 0); }
    float bias(const uint8_t* row) const { return parameter(row, 1); }

private:
    float parameter(const uint8_t* row, int which) const {
        if constexpr (kBits == 8) {
            float x;
            std::memcpy(&x, row + value_bytes + 4 * which, sizeof x);
            return x;
        } else {
            uint16_t half;
            std::memcpy(&half, row + value_bytes + 2 * which, sizeof half);
            return V::from_half(half);
        }
    }
};

enum class BagKind { sum, weighted_sum, max };

// The columns [column, column + kVectors * W) of one bag. kPart: only the first `columns` < W of one vector exist.
// Returns a pick that has no row, or -1.
template <class V, int kBits, BagKind kKind, int kVectors, bool kPart>
int64_t embedding_block(const EmbeddingTable<V, kBits>& table, int64_t first, int64_t last, int64_t column,
                        int64_t columns, float* y) {
    using F = typename V::F;
    constexpr int kVectorBytes = V::W * kBits / 8;
    constexpr bool kMax = kKind == BagKind::max;
    static_assert(!kPart || kVectors == 1);
    const EmbeddingArgs& a = table.a;
    const bool fetch = column == 0;
    const uint8_t* const start = a.table + column * kBits / 8;
    const int64_t* pick = a.picks + (first - a.picks_begin);
    const int64_t* const end = a.picks + (last - a.picks_begin);
    const float* weight = kKind == BagKind::weighted_sum ? a.weights + first : nullptr;
    const F zero = V::set(0.0f);
    // Every loop over it is unrolled: else GCC keeps it in memory.
    F sum[kVectors];
#pragma GCC unroll 8
    for (int k = 0; k < kVectors; ++k) sum[k] = kMax ? V::set(-std::numeric_limits<float>::infinity()) : zero;
    for (; pick < end; ++pick) {
        if (fetch) table.fetch(pick + table.kAhead);
        if (!a.has(*pick)) {
            if (!a.is_zeros(*pick)) return a.picks_begin + (pick - a.picks);
            if constexpr (kKind == BagKind::weighted_sum) ++weight;
            if constexpr (kMax)
#pragma GCC unroll 8
                for (int k = 0; k < kVectors; ++k) sum[k] = V::max(zero, sum[k]);
            continue;
        }
        const int64_t at = *pick * table.row_bytes;
        F scale = V::set(table.scale(a.table + at)), bias = V::set(table.bias(a.table + at));
        if constexpr (kKind == BagKind::weighted_sum) {
            const F w = V::set(*weight++);
            scale = V::mul(w, scale);
            bias = V::mul(w, bias);
        }
        const uint8_t* values = start + at;
        uint8_t padded[kVectorBytes + 2] = {};
        if constexpr (kPart) {
            std::memcpy(padded, values, static_cast<size_t>((columns * kBits + 7) / 8));
            values = padded;
        }
#pragma GCC unroll 8
        for (int k = 0; k < kVectors; ++k) {
            const F v = V::template load_bit_floats<kBits>(values + k * kVectorBytes);
            if constexpr (kMax)
                sum[k] = V::max(V::fma(v, scale, bias), sum[k]);
            else
                sum[k] = V::fma(v, scale, V::add(sum[k], bias));
        }
    }
    if (a.mode == BagMode::mean) {
        const F count = V::set(static_cast<float>(last - first));
#pragma GCC unroll 8
        for (int k = 0; k < kVectors; ++k) sum[k] = V::div(sum[k], count);
    }
    if constexpr (kPart) {
        float whole[V::W];
        V::store(whole, sum[0]);
        std::memcpy(y + column, whole, static_cast<size_t>(columns) * sizeof(float));
    } else {
#pragma GCC unroll 8
        for (int k = 0; k < kVectors; ++k) V::store(y + column + k * V::W, sum[k]);
    }
    return -1;
}

template <class V, int kBits, BagKind kKind>
int64_t embedding_bags(const EmbeddingArgs& a, int64_t begin, int64_t end) {
    const EmbeddingTable<V, kBits> table(a);
    for (int64_t bag = begin; bag < end; ++bag) {
        const int64_t first = a.bag_begin(bag), last = a.bag_begin(bag + 1);
        float* y = a.y + bag * a.columns;
        if (first == last) {
            std::memset(y, 0, static_cast<size_t>(a.columns) * sizeof(float));
            continue;
        }
        int64_t c = 0, bad = -1;
        for (; c + 8 * V::W <= a.columns && bad < 0; c += 8 * V::W)
            bad = embedding_block<V, kBits, kKind, 8, false>(table, first, last, c, 0, y);
        if (c + 4 * V::W <= a.columns && bad < 0) {
            bad = embedding_block<V, kBits, kKind, 4, false>(table, first, last, c, 0, y);
            c += 4 * V::W;
        }
        if (c + 2 * V::W <= a.columns && bad < 0) {
            bad = embedding_block<V, kBits, kKind, 2, false>(table, first, last, c, 0, y);
            c += 2 * V::W;
        }
        if (c + V::W <= a.columns && bad < 0) {
            bad = embedding_block<V, kBits, kKind, 1, false>(table, first, last, c, 0, y);
            c += V::W;
        }
        if (c < a.columns && bad < 0)
            bad = embedding_block<V, kBits, kKind, 1, true>(table, first, last, c, a.columns - c, y);
        if (bad >= 0) return bad;
    }
    return -1;
}

template <class V, int kBits>
int64_t embedding_with_bits(const EmbeddingArgs& a, int64_t begin, int64_t end) {
    if (a.mode == BagMode::max) return embedding_bags<V, kBits, BagKind::max>(a, begin, end);
    if (a.weights != nullptr) return embedding_bags<V, kBits, BagKind::weighted_sum>(a, begin, end);
    return embedding_bags<V, kBits, BagKind::sum>(a, begin, end);
}

template <class V>
int64_t embedding_with(const EmbeddingArgs& a, int64_t begin, int64_t end) {
    if (a.bits == 8) return embedding_with_bits<V, 8>(a, begin, end);
    if (a.bits == 4) return embedding_with_bits<V, 4>(a, begin, end);
    return embedding_with_bits<V, 2>(a, begin, end);
}

}  // namespace
}  // namespace zeropoint
