// Small, quick and the same everywhere: a file that was found can be made again from its number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace zeropoint::check {

class Random {
public:
    Random(uint64_t seed, uint64_t stream) : state_(seed * 0x9E3779B97F4A7C15u ^ (stream + 1) * 0xD1B54A32D192ED03u) {}

    uint64_t bits() {  // splitmix64
        uint64_t z = state_ += 0x9E3779B97F4A7C15u;
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
        z = (z ^ z >> 27) * 0x94D049BB133111EBu;
        return z ^ z >> 31;
    }
    // From 0 to n - 1; 0 if n is 0.
    size_t below(size_t n) { return n == 0 ? 0 : static_cast<size_t>(bits() % n); }
    int64_t between(int64_t low, int64_t high) {
        return low + static_cast<int64_t>(below(static_cast<size_t>(high - low + 1)));
    }
    bool one_in(size_t n) { return below(n) == 0; }
    template <class T>
    const T& pick(const std::vector<T>& list) {
        return list[below(list.size())];
    }

private:
    uint64_t state_;
};

}  // namespace zeropoint::check
