// Deterministic inputs: numbers that kernels get wrong, grids of every kind, and buffers that notice stray writes.
#pragma once

#include "kernels/types.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace zeropoint::check {

// splitmix64: the same sequence everywhere.
class Random {
public:
    explicit Random(uint64_t seed) : state_(seed) {}
    uint64_t bits() {
        uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        return z ^ (z >> 31);
    }
    int64_t below(int64_t n) { return static_cast<int64_t>(bits() % static_cast<uint64_t>(n)); }
    int64_t between(int64_t low, int64_t high) { return low + below(high - low + 1); }
    double unit() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
    template <class T, size_t N>
    T of(const T (&values)[N]) {
        return values[below(N)];
    }

private:
    uint64_t state_;
};

inline float float_of_bits(uint32_t bits) {
    float f;
    std::memcpy(&f, &bits, sizeof f);
    return f;
}

constexpr float kInf = std::numeric_limits<float>::infinity();

// Where rounding, conversion and comparison go wrong. Also multiplied by a scale, to stand there after quantization.
constexpr float kExtremes[] = {0.0f,
                               -0.0f,
                               kInf,
                               -kInf,
                               0x1p-149f,
                               -0x1p-149f,
                               0x1p-126f,
                               -0x1p-126f,
                               0x1.fffffcp-127f,
                               3.4028235e38f,
                               -3.4028235e38f,
                               0.49999997f,
                               -0.49999997f,
                               0.50000006f,
                               8388607.5f,
                               -8388607.5f,
                               8388609.0f,
                               16777217.0f,
                               4194303.5f,
                               -4194302.5f,
                               2147483520.0f,
                               2147483648.0f,
                               -2147483648.0f,
                               -2147483904.0f,
                               4294967296.0f,
                               1099511627776.0f,
                               -4294967040.0f,
                               9.2233715e18f,
                               9223372036854775808.0f,
                               -9223372036854775808.0f,
                               -9.223373e18f,
                               1e30f,
                               -1e30f,
                               127.5f,
                               -128.5f,
                               255.5f};

// A float32 input for a parameter of this scale: ties, extremes, NaN of either sign, and ordinary numbers.
inline float number(Random& random, float scale) {
    switch (random.below(16)) {
        case 0: return float_of_bits(random.below(2) != 0 ? 0x7FC00000u : 0xFFC00001u);
        case 1: return random.of(kExtremes);
        case 2: return random.of(kExtremes) * scale;
        case 3: return float_of_bits(static_cast<uint32_t>(random.bits()));
        case 4:
        case 5:
        case 6:
        case 7: return (static_cast<float>(random.between(-300, 300)) + 0.5f) * scale;  // a tie where scale is 2^k
        default: return static_cast<float>(random.unit() * 700.0 - 350.0) * scale;
    }
}

inline std::vector<float> numbers(Random& random, int64_t n, float scale) {
    std::vector<float> r(static_cast<size_t>(n));
    for (float& x : r) x = number(random, scale);
    return r;
}

// Quantization parameters in the forms kernels take.
struct Parameters {
    std::vector<float> scale, inv, zero_point;
    std::vector<double> wide_scale, wide_inv, wide_zero_point;
};

inline Parameters parameters(Random& random, int64_t count) {
    Parameters p;
    for (int64_t i = 0; i < count; ++i) {
        double scale = std::ldexp(1.0, static_cast<int>(random.between(-8, 4)));
        switch (random.below(8)) {
            case 0: scale = random.unit() + 1e-3; break;
            case 1: scale = -scale; break;                 // some ops give it a meaning
            case 2: scale = random.unit() * 1e-40; break;  // float32: subnormal, or 0 with an infinite inverse
            case 3: scale = 0.1; break;
            default: break;
        }
        double zero_point = static_cast<double>(random.between(-130, 256));
        switch (random.below(8)) {
            case 0: zero_point = 0; break;
            case 1: zero_point += 0.5; break;
            case 2: zero_point = random.unit() * 10 - 5; break;
            case 3:
                zero_point = random.of({-2147483648.0, 2147483647.0, 16777217.0, -8388609.0, 8388608.0, -0.0});
                break;
            default: break;
        }
        p.wide_scale.push_back(scale);
        p.wide_inv.push_back(1.0 / scale);
        p.wide_zero_point.push_back(zero_point);
        p.scale.push_back(static_cast<float>(scale));
        p.inv.push_back(1.0f / static_cast<float>(scale));
        p.zero_point.push_back(static_cast<float>(zero_point));
    }
    // No spare room: AddressSanitizer then sees a read past the last parameter.
    for (std::vector<float>* v : {&p.scale, &p.inv, &p.zero_point}) v->shrink_to_fit();
    for (std::vector<double>* v : {&p.wide_scale, &p.wide_inv, &p.wide_zero_point}) v->shrink_to_fit();
    return p;
}

// A grid with what it needs to live: the parameter index of each row, and how many parameters there are.
struct GridCase {
    Grid shape;
    std::vector<int64_t> row_base;
    int64_t parameter_count = 0;

    Grid grid() const {
        Grid g = shape;
        g.row_base = row_base.empty() ? nullptr : row_base.data();
        return g;
    }
    std::string describe() const {
        return "grid " + std::to_string(shape.rows) + "x" + std::to_string(shape.segments) + "x" +
               std::to_string(shape.length) +
               (row_base.empty() ? ", row_stride " + std::to_string(shape.row_stride) : ", row_base");
    }
};

inline GridCase grid_case(int64_t rows, int64_t segments, int64_t length, int64_t row_stride) {
    return {
        {rows, segments, length, row_stride, nullptr}, {}, rows > 0 ? (rows - 1) * row_stride + segments : segments};
}
inline GridCase looked_up(Random& random, int64_t rows, int64_t segments, int64_t length) {
    GridCase c{{rows, segments, length, 0, nullptr}, {}, 0};
    for (int64_t r = 0; r < rows; ++r) c.row_base.push_back(random.below(rows) / 2 * segments);
    c.parameter_count = *std::max_element(c.row_base.begin(), c.row_base.end()) + segments;
    return c;
}

inline std::vector<GridCase> grid_cases(Random& random, bool quick) {
    std::vector<GridCase> cases;
    for (int64_t n = 0; n <= 200; ++n) cases.push_back(grid_case(1, 1, n, 0));  // per tensor: every tail of every block
    for (int64_t n : {255, 256, 257, 1023, 4099}) cases.push_back(grid_case(1, 1, n, 0));
    if (!quick) cases.push_back(grid_case(1, 1, 65539, 0));
    for (int64_t channels : {1, 2, 3, 7, 8, 9, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 200})
        cases.push_back(grid_case(3, channels, 1, 0));  // channels-last: parameters read as vectors
    for (int64_t length : {2, 3, 9, 15, 17, 31, 33, 49, 63, 64, 65, 130, 257, 1024})
        cases.push_back(grid_case(2, 5, length, 0));                                             // per channel
    for (int64_t length : {1, 5, 16, 64, 77, 300}) cases.push_back(grid_case(7, 1, length, 1));  // per token
    for (int64_t length : {1, 2, 8, 32, 65, 128}) cases.push_back(grid_case(3, 4, length, 4));   // per group
    cases.push_back(grid_case(5, 70, 1, 70));
    for (int64_t segments : {1, 3, 40})
        for (int64_t length : {1, 4, 33, 100}) cases.push_back(looked_up(random, 6, segments, length));  // per block
    for (const GridCase& empty : {grid_case(0, 3, 4, 0), grid_case(3, 0, 4, 0), grid_case(3, 4, 0, 0)})
        cases.push_back(empty);
    return cases;
}

struct Span {
    int64_t begin = 0, end = 0;
    std::string describe() const { return "[" + std::to_string(begin) + ", " + std::to_string(end) + ")"; }
};

// The whole range and some parts of it.
inline std::vector<Span> spans(Random& random, int64_t n) {
    std::vector<Span> r{{0, n}};
    if (n == 0) return r;
    for (int i = 0; i < 2; ++i) {
        const int64_t a = random.between(0, n), b = random.between(0, n);
        r.push_back({std::min(a, b), std::max(a, b)});
    }
    return r;
}
// Every part of it, or every `step`th.
inline std::vector<Span> all_spans(int64_t n, int64_t step = 1) {
    std::vector<Span> r;
    int64_t count = 0;
    for (int64_t begin = 0; begin <= n; ++begin)
        for (int64_t end = begin; end <= n; ++end)
            if (count++ % step == 0) r.push_back({begin, end});
    return r;
}

inline bool same(float a, float b) { return std::memcmp(&a, &b, sizeof a) == 0 || (std::isnan(a) && std::isnan(b)); }
template <class T>
bool same(T a, T b) {
    return a == b;
}

// n elements between two guard zones, all filled with one pattern: what a kernel should not have written shows.
template <class T>
class Guarded {
public:
    explicit Guarded(int64_t n) : all_(static_cast<size_t>(n + 2 * kGuard)) { reset(); }
    T* data() { return all_.data() + kGuard; }
    void reset() { std::memset(static_cast<void*>(all_.data()), kPattern, all_.size() * sizeof(T)); }

    static constexpr int64_t kNone = std::numeric_limits<int64_t>::min();
    // The first index (before 0 or from n up: a guard) where two buffers differ, or kNone. NaN equals NaN: neither its
    // sign nor its payload is part of any contract.
    int64_t difference(const Guarded& other) const {
        if (std::memcmp(all_.data(), other.all_.data(), all_.size() * sizeof(T)) == 0) return kNone;
        for (size_t i = 0; i < all_.size(); ++i)
            if (!same(all_[i], other.all_[i])) return static_cast<int64_t>(i) - kGuard;
        return kNone;
    }
    bool untouched_outside(Span span) const {
        T pattern;
        std::memset(&pattern, kPattern, sizeof pattern);
        const auto kept = [&](int64_t from, int64_t to) {
            for (int64_t i = from; i < to; ++i)
                if (all_[static_cast<size_t>(i)] != pattern) return false;
            return true;
        };
        return kept(0, kGuard + span.begin) && kept(kGuard + span.end, static_cast<int64_t>(all_.size()));
    }
    std::string show(int64_t i) const { return std::to_string(all_[static_cast<size_t>(i + kGuard)]); }

private:
    static constexpr int kPattern = 0xA5;
    static constexpr int64_t kGuard = 32;
    std::vector<T> all_;
};

}  // namespace zeropoint::check
