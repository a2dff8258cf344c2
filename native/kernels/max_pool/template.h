// max_pool in loops that compilers vectorize for the instruction set of the file that includes this one.
#pragma once

#include "kernels/max_pool/max_pool.h"

#include <limits>

namespace zeropoint {
namespace {

struct Largest {
    template <class T>
    static T two(T a, T b) {
        return a > b ? a : b;
    }
    template <int N, bool First, class T>
    static void into(T* __restrict acc, const T* const* sources, int64_t n) {
        const T *a = sources[0], *b = sources[N > 1 ? 1 : 0], *c = sources[N > 2 ? 2 : 0], *d = sources[N > 3 ? 3 : 0];
        for (int64_t i = 0; i < n; ++i) {
            T m = First ? a[i] : two(acc[i], a[i]);
            if (N > 1) m = two(m, b[i]);
            if (N > 2) m = two(m, c[i]);
            if (N > 3) m = two(m, d[i]);
            acc[i] = m;
        }
    }
};

template <class T>
void max_pool_rows(const MaxPoolArgs& a, int64_t begin, int64_t end, T* scratch) {
    const PoolShape& s = a.shape;
    const WindowAxis& width = s.width;
    const T* x = static_cast<const T*>(a.x);
    const bool by_window = s.channels >= 128 && disjoint(width);
    PoolRow r = pool_row(s, begin);
    for (int64_t row = begin; row < end; next_row(s, row, r), ++row) {
        T* y = static_cast<T*>(a.y) + r.out;
        const auto lowest = [&](int64_t o) {
            for (int64_t c = 0; c < r.channels; ++c) y[o * s.pixel + c] = std::numeric_limits<T>::lowest();
        };
        if (by_window) {
            for (int64_t o = 0; o < width.out; ++o)
                if (!combine_window<Largest>(s, r, x, o, y + o * s.pixel)) lowest(o);
            continue;
        }
        const bool any = combine_rows<Largest>(s, r, x, scratch);
        const auto some = [&](int64_t first, int64_t last) {
            for (int64_t o = first; o < last; ++o)
                if (!any || !combine_places<Largest>(width, o, r.channels, scratch, y + o * s.pixel)) lowest(o);
        };
        if (any && s.pixel == 1) {
            some(0, width.regular);
            combine_regular<Largest>(width, scratch, y + width.regular);
            some(width.regular_end, width.out);
        } else {
            some(0, width.out);
        }
    }
}

inline void max_pool_with(const MaxPoolArgs& a, int64_t begin, int64_t end, void* scratch) {
    switch (a.type) {
        case IntType::u8: return max_pool_rows(a, begin, end, static_cast<uint8_t*>(scratch));
        case IntType::s8: return max_pool_rows(a, begin, end, static_cast<int8_t*>(scratch));
        default: return max_pool_rows(a, begin, end, static_cast<int32_t*>(scratch));
    }
}

}  // namespace
}  // namespace zeropoint
