// Visits an element range of a Grid as stretches that one vector loop can handle.
#pragma once

#include "kernels/types.h"

namespace zeropoint {
namespace {  // internal linkage: this header is compiled once per instruction set

inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

// For the elements [begin, end) of `grid`, in order, calls
//   run(first, count, p)   `count` elements from `first` all use parameter p          (length > 1 or one segment)
//   vec(first, count, p)   element first + i uses parameter p + i                     (length == 1)
template <class Run, class Vec>
inline void walk(const Grid& grid, int64_t begin, int64_t end, const Run& run, const Vec& vec) {
    const int64_t row_size = grid.segments * grid.length;
    int64_t at = begin;
    while (at < end) {
        const int64_t row = grid.rows == 1 ? 0 : at / row_size;  // a division costs as much as a short row
        const int64_t row_end = smaller(end, (row + 1) * row_size);
        const int64_t base = grid.base(row);
        if (grid.length == 1 && grid.segments > 1) {
            vec(at, row_end - at, base + (at - row * row_size));
            at = row_end;
        } else {
            int64_t segment = grid.segments == 1 ? 0 : (at - row * row_size) / grid.length;
            while (at < row_end) {
                const int64_t stop = smaller(row_end, row * row_size + (segment + 1) * grid.length);
                run(at, stop - at, base + segment);
                at = stop;
                ++segment;
            }
        }
    }
}

// Calls one(i, p) for each element i of [begin, end), in order, with its parameter p.
template <class One>
inline void for_each(const Grid& grid, int64_t begin, int64_t end, const One& one) {
    walk(
        grid, begin, end,
        [&](int64_t first, int64_t count, int64_t p) {
            for (int64_t i = 0; i < count; ++i) one(first + i, p);
        },
        [&](int64_t first, int64_t count, int64_t p) {
            for (int64_t i = 0; i < count; ++i) one(first + i, p + i);
        });
}

}  // namespace
}  // namespace zeropoint
