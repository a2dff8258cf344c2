// Where a vector loop takes its per-channel numbers from: one value for all lanes, or the next ones of an array.
#pragma once

#include <cstdint>

namespace zeropoint {
namespace {

// One value, whatever the lane.
template <class V, class T>
struct Same {
    using Vec = decltype(V::set(T{}));
    Vec value;
    explicit Same(T x) : value(V::set(x)) {}
    Vec at(int64_t) const { return value; }
    Same tail(int64_t, int64_t, T*) const { return *this; }
};

// Consecutive values; at(i) reads a whole vector from element i.
template <class V, class T>
struct Along {
    using Vec = decltype(V::set(T{}));
    const T* data;
    explicit Along(const T* p) : data(p) {}
    Vec at(int64_t i) const { return V::load(data + i); }
    // The last `count` values from `first`, copied to `buffer` (a block long) so that at() may read past them.
    Along tail(int64_t first, int64_t count, T* buffer) const {
        for (int64_t i = 0; i < count; ++i) buffer[i] = data[first + i];
        for (int64_t i = count; i < 4 * V::W; ++i) buffer[i] = T{1};
        return Along(buffer);
    }
};

}  // namespace
}  // namespace zeropoint
