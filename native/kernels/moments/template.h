// moments for any vector type V of simd/.
#pragma once

#include "kernels/moments/moments.h"
#include "kernels/simd/bytes.h"

#include <cstring>

namespace zeropoint {
namespace {

// Of the bytes after the flip; `n` of them.
inline void store_moments(const MomentsArgs& a, int64_t out, int64_t sum, int64_t squares, int64_t n) {
    const int64_t offset = flip_of(a.type);
    a.sums[out] = sum - offset * n;
    if (a.squares != nullptr) a.squares[out] = squares - 2 * offset * sum + offset * offset * n;
}

// The sum of the last n of eight bytes: pairs in 16 bits, then their sum in the topmost 16.
inline int64_t sum_of_last(const uint8_t* x, int64_t n, uint8_t flip) {
    constexpr uint64_t kOnes = 0x0001000100010001, kLow = 0x00FF00FF00FF00FF;
    uint64_t bytes;
    std::memcpy(&bytes, x, sizeof bytes);
    bytes = (bytes ^ flip * uint64_t{0x0101010101010101}) >> 8 * (8 - n);
    return static_cast<int64_t>(((bytes & kLow) + (bytes >> 8 & kLow)) * kOnes >> 48);
}

// Of squares, whose lanes together may exceed 32 bits.
template <class V>
int64_t total(typename V::I lanes) {
    int32_t each[V::W];
    V::store_int(each, lanes);
    int64_t sum = 0;
    for (int32_t lane : each) sum += lane;
    return sum;
}

template <class V, bool kSquares>
void moments_of_row(const MomentsArgs& a, int64_t row) {
    // A block adds less than 2^19 to a lane.
    constexpr int64_t kBlock = 4 * V::W, kBlocks = 4096;
    const uint8_t* x = static_cast<const uint8_t*>(a.x) + row * a.length;
    const uint8_t flip = flip_of(a.type);
    int64_t sum = 0, squares = 0, i = 0;
    while (i + kBlock <= a.length) {
        const int64_t last = a.length - i < kBlock * kBlocks ? a.length : i + kBlock * kBlocks;
        typename V::I sums = V::set_int(0), square_sums = V::set_int(0);
        for (; i + kBlock <= last; i += kBlock) {
            sums = V::add_bytes(sums, x + i, flip);
            if (kSquares) square_sums = V::add_squares(square_sums, x + i, flip);
        }
        sum += V::reduce_add(sums);
        if (kSquares) squares += total<V>(square_sums);
    }
    if (!kSquares) sum += sum_of_sixteens(x, i, a.length, flip);
    for (; !kSquares && i + 8 <= a.length; i += 8) sum += sum_of_last(x + i, 8, flip);
    if (!kSquares && i > 0 && i < a.length) {
        sum += sum_of_last(x + a.length - 8, a.length - i, flip);
        i = a.length;
    }
    const int64_t whole = i;
    int32_t rest = 0, rest_squares = 0;
    for (; i < a.length && i < whole + kBlock; ++i) {
        const int32_t q = static_cast<uint8_t>(x[i] ^ flip);
        rest += q;
        rest_squares += q * q;
    }
    store_moments(a, row, sum + rest, squares + rest_squares, a.length);
}

template <bool kSquares>
void moments_of_columns(const MomentsArgs& a, int64_t image, int64_t first) {
    constexpr int64_t kColumns = MomentsArgs::kColumns, kRows = 256;  // 256 bytes fit in 16 bits
    const uint8_t* x = static_cast<const uint8_t*>(a.x) + image * a.rows * a.length + first;
    const int64_t columns = a.length - first < kColumns ? a.length - first : kColumns;
    const uint8_t flip = flip_of(a.type);
    int64_t all[kColumns] = {}, all_squares[kColumns] = {};
    const auto add = [&](uint16_t* sums, uint32_t* squares, const uint8_t* at, int64_t n) {
        for (int64_t c = 0; c < n; ++c) {
            const uint8_t q = at[c] ^ flip;
            sums[c] = static_cast<uint16_t>(sums[c] + q);
            if (kSquares) squares[c] += static_cast<uint16_t>(q * q);
        }
    };
    for (int64_t row = 0; row < a.rows;) {
        uint16_t sums[kColumns] = {};
        uint32_t squares[kColumns] = {};
        const int64_t last = a.rows - row < kRows ? a.rows : row + kRows;
        for (; row < last; ++row) {
            const uint8_t* at = x + row * a.length;
            if (columns == kColumns)
                add(sums, squares, at, kColumns);  // a number known to the compiler
            else
                add(sums, squares, at, columns);
        }
        for (int64_t c = 0; c < columns; ++c) {
            all[c] += sums[c];
            all_squares[c] += squares[c];
        }
    }
    for (int64_t c = 0; c < columns; ++c)
        store_moments(a, image * a.length + first + c, all[c], all_squares[c], a.rows);
}

template <class V>
void moments_with(const MomentsArgs& a, int64_t begin, int64_t end) {
    const bool wanted = a.squares != nullptr;
    for (int64_t unit = begin; unit < end; ++unit) {
        if (a.across) {
            const int64_t image = unit / a.blocks(), first = unit % a.blocks() * MomentsArgs::kColumns;
            wanted ? moments_of_columns<true>(a, image, first) : moments_of_columns<false>(a, image, first);
        } else {
            wanted ? moments_of_row<V, true>(a, unit) : moments_of_row<V, false>(a, unit);
        }
    }
}

}  // namespace
}  // namespace zeropoint
