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

    explicit EmbeddingTable(const EmbeddingArgs& args) : a(args) {}

    const uint8_t* row(int64_t pick) const {
        const int64_t r = a.row(pick);
        return r < 0 ? nullptr : a.table + r * row_bytes;
    }
    void fetch(int64_t pick) const {
        if (pick >= a.picks_end) return;
        const uint8_t* r = row(pick);
        if (r == nullptr) return;
        for (int64_t byte = 0; byte < row_bytes; byte += 64) __builtin_prefetch(r + byte);
        __builtin_prefetch(r + row_bytes - 1);
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

// The columns [column, column + kVectors * W) of one bag. kPart: only the first `columns` < W of one vector exist.
template <class V, int kBits, bool kMax, int kVectors, bool kPart>
void embedding_block(const EmbeddingTable<V, kBits>& table, int64_t first, int64_t last, int64_t column,
                     int64_t columns, float* y) {
    using F = typename V::F;
    constexpr int kVectorBytes = V::W * kBits / 8;
    static_assert(!kPart || kVectors == 1);
    const EmbeddingArgs& a = table.a;
    const bool fetch = column == 0;
    const int64_t at = column * kBits / 8;
    const F zero = V::set(0.0f);
    F sum[kVectors];
    for (F& s : sum) s = kMax ? V::set(-std::numeric_limits<float>::infinity()) : zero;
    for (int64_t i = first; i < last; ++i) {
        if (fetch) table.fetch(i + table.kAhead);
        const uint8_t* row = table.row(i);
        if (row == nullptr) {
            if constexpr (kMax)
                for (F& s : sum) s = V::max(zero, s);
            continue;
        }
        const float weight = a.weights != nullptr ? a.weights[i] : 1.0f;
        const F scale = V::set(weight * table.scale(row)), bias = V::set(weight * table.bias(row));
        const uint8_t* values = row + at;
        uint8_t padded[kVectorBytes] = {};
        if constexpr (kPart) {
            std::memcpy(padded, values, static_cast<size_t>((columns * kBits + 7) / 8));
            values = padded;
        }
        for (int k = 0; k < kVectors; ++k) {
            const F v = V::to_float(V::template load_bits<kBits>(values + k * kVectorBytes));
            if constexpr (kMax)
                sum[k] = V::max(V::fma(v, scale, bias), sum[k]);
            else
                sum[k] = V::fma(v, scale, V::add(sum[k], bias));
        }
    }
    if (a.mode == BagMode::mean) {
        const F count = V::set(static_cast<float>(last - first));
        for (F& s : sum) s = V::div(s, count);
    }
    if constexpr (kPart) {
        float whole[V::W];
        V::store(whole, sum[0]);
        std::memcpy(y + column, whole, static_cast<size_t>(columns) * sizeof(float));
    } else {
        for (int k = 0; k < kVectors; ++k) V::store(y + column + k * V::W, sum[k]);
    }
}

template <class V, int kBits, bool kMax>
void embedding_bags(const EmbeddingArgs& a, int64_t begin, int64_t end) {
    const EmbeddingTable<V, kBits> table(a);
    for (int64_t bag = begin; bag < end; ++bag) {
        const int64_t first = a.bag_begin(bag), last = a.bag_begin(bag + 1);
        float* y = a.y + bag * a.columns;
        if (first == last) {
            std::memset(y, 0, static_cast<size_t>(a.columns) * sizeof(float));
            continue;
        }
        int64_t c = 0;
        for (; c + 8 * V::W <= a.columns; c += 8 * V::W)
            embedding_block<V, kBits, kMax, 8, false>(table, first, last, c, 0, y);
        if (c + 4 * V::W <= a.columns) {
            embedding_block<V, kBits, kMax, 4, false>(table, first, last, c, 0, y);
            c += 4 * V::W;
        }
        if (c + 2 * V::W <= a.columns) {
            embedding_block<V, kBits, kMax, 2, false>(table, first, last, c, 0, y);
            c += 2 * V::W;
        }
        if (c + V::W <= a.columns) {
            embedding_block<V, kBits, kMax, 1, false>(table, first, last, c, 0, y);
            c += V::W;
        }
        if (c < a.columns) embedding_block<V, kBits, kMax, 1, true>(table, first, last, c, a.columns - c, y);
    }
}

template <class V, int kBits>
void embedding_with_bits(const EmbeddingArgs& a, int64_t begin, int64_t end) {
    if (a.mode == BagMode::max) return embedding_bags<V, kBits, true>(a, begin, end);
    return embedding_bags<V, kBits, false>(a, begin, end);
}

template <class V>
void embedding_with(const EmbeddingArgs& a, int64_t begin, int64_t end) {
    if (a.bits == 8) return embedding_with_bits<V, 8>(a, begin, end);
    if (a.bits == 4) return embedding_with_bits<V, 4>(a, begin, end);
    return embedding_with_bits<V, 2>(a, begin, end);
}

}  // namespace
}  // namespace zeropoint
