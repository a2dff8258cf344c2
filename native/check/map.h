// Maps: every loop of every type against the reference, and functions of float32 against those of the C library in
// float64.
#pragma once

#include "check/inputs.h"
#include "check/kernels.h"
#include "check/report.h"
#include "operators/map.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

namespace zeropoint::check {

constexpr int kMapOperations = 0
#define OPERATION(name, operands, types, result) +1
#include "kernels/map/operations.inc"
#undef OPERATION
    ;
inline const char* map_name(MapOperation operation) {
    constexpr const char* kNames[] = {
#define OPERATION(name, operands, types, result) #name,
#include "kernels/map/operations.inc"
#undef OPERATION
    };
    return kNames[static_cast<int>(operation)];
}

// Elements of a type, as bytes: ordinary ones, and those at the ends.
inline std::vector<uint8_t> map_elements(Random& random, MapType type, int64_t n) {
    std::vector<uint8_t> out(static_cast<size_t>(n) * 8);
    const auto write = [&](auto value, int64_t i) {
        std::memcpy(out.data() + static_cast<size_t>(i) * sizeof value, &value, sizeof value);
    };
    constexpr float kInfinite = std::numeric_limits<float>::infinity();
    constexpr float kStrange[] = {0.0f, -0.0f, 1.0f,      -1.0f,      0.5f,
                                  2.0f, -3.0f, 1e-40f,    3e38f,      -3e38f,
                                  1e7f, 1e20f, kInfinite, -kInfinite, std::numeric_limits<float>::quiet_NaN()};
    constexpr int64_t kEnds[] = {0, 1, -1, 2, 7, 31, 63, 64, 127, 128, 255, INT32_MIN, INT32_MAX, INT64_MIN, INT64_MAX};
    for (int64_t i = 0; i < n; ++i) {
        const int64_t whole = random.below(3) == 0 ? random.of(kEnds) : random.between(-9, 9);
        switch (type) {
            case MapType::boolean: write(static_cast<uint8_t>(random.below(2)), i); break;
            case MapType::u8: write(static_cast<uint8_t>(whole), i); break;
            case MapType::s8: write(static_cast<int8_t>(whole), i); break;
            case MapType::s32: write(static_cast<int32_t>(whole), i); break;
            case MapType::s64: write(whole, i); break;
            case MapType::f32:
                write(random.below(3) == 0   ? random.of(kStrange)
                      : random.below(3) == 0 ? float_of_bits(static_cast<uint32_t>(random.bits()))
                                             : static_cast<float>(8 * random.unit() - 4),
                      i);
        }
    }
    return out;
}

// The first element that differs, or -1; any NaN is as good as another.
inline int64_t map_difference(MapType type, const std::vector<uint8_t>& a, const std::vector<uint8_t>& b, int64_t n) {
    const size_t size = static_cast<size_t>(bytes_of(type));
    for (int64_t i = 0; i < n; ++i) {
        const uint8_t *x = a.data() + static_cast<size_t>(i) * size, *y = b.data() + static_cast<size_t>(i) * size;
        if (std::memcmp(x, y, size) == 0) continue;
        float u = 0, v = 0;
        if (type == MapType::f32) {
            std::memcpy(&u, x, sizeof u);
            std::memcpy(&v, y, sizeof v);
        }
        if (type != MapType::f32 || !(u != u && v != v)) return i;
    }
    return -1;
}

struct ExactFunction {
    MapOperation operation;
    double (*compute)(double);
    double low, high;
};
inline const std::vector<ExactFunction>& exact_functions() {
    using Op = MapOperation;
    static const std::vector<ExactFunction> list = {
        {Op::exp, std::exp, -104, 90},    {Op::exp2, std::exp2, -150, 129},   {Op::expm1, std::expm1, -20, 90},
        {Op::log, std::log, 0, 1e4},      {Op::log2, std::log2, 0, 1e4},      {Op::log10, std::log10, 0, 1e4},
        {Op::log1p, std::log1p, -1, 1e4}, {Op::sin, std::sin, -1e3, 1e3},     {Op::cos, std::cos, -1e3, 1e3},
        {Op::tan, std::tan, -1e3, 1e3},   {Op::sin, std::sin, 1e6, 3e38},     {Op::cos, std::cos, 1e6, 3e38},
        {Op::tan, std::tan, 1e6, 3e38},   {Op::sin, std::sin, -2e6, 2e6},     {Op::asin, std::asin, -1, 1},
        {Op::acos, std::acos, -1, 1},     {Op::atan, std::atan, -40, 40},     {Op::sinh, std::sinh, -90, 90},
        {Op::cosh, std::cosh, -90, 90},   {Op::asinh, std::asinh, -1e4, 1e4}, {Op::acosh, std::acosh, 1, 1e4},
        {Op::atanh, std::atanh, -1, 1},   {Op::erf, std::erf, -5, 5},         {Op::erfc, std::erfc, -5, 10},
    };
    return list;
}

inline void check_map(Report& report, bool quick) {
    Contest<MapFn> contest(report, "map", &Kernels::map);
    Random random(71);
    const MapLoops reference = contest.reference();
    const int64_t n = quick ? 200 : 3001;
    for (int number = 0; number < kMapOperations; ++number)
        for (int t = 0; t < kMapTypes; ++t) {
            const MapOperation operation = static_cast<MapOperation>(number);
            const MapType type = static_cast<MapType>(t);
            const MapLoop loop = reference.operation(operation, type);
            if (loop == nullptr) continue;
            const bool chooses = operands_of(operation) == 3;
            const std::vector<uint8_t> a = map_elements(random, chooses ? MapType::boolean : type, n),
                                       b = map_elements(random, type, n), c = map_elements(random, type, n);
            std::vector<uint8_t> want(a.size()), got(a.size());
            const bool fine = loop(a.data(), b.data(), c.data(), want.data(), n);
            for (auto& candidate : contest.candidates) {
                const bool same =
                    candidate.kernel().operation(operation, type)(a.data(), b.data(), c.data(), got.data(), n) == fine;
                const MapType result = gives_bool(operation) ? MapType::boolean : type;
                const int64_t at = map_difference(result, want, got, n);
                candidate.check.expect(same && at < 0, [&] {
                    return std::string(map_name(operation)) + " of type " + std::to_string(t) + " differs at " +
                           std::to_string(at);
                });
            }
        }
    for (int from = 0; from < kMapTypes; ++from)
        for (int to = 0; to < kMapTypes; ++to) {
            const std::vector<uint8_t> a = map_elements(random, static_cast<MapType>(from), n);
            std::vector<uint8_t> want(a.size()), got(a.size());
            const auto convert = [&](const MapLoops& loops, std::vector<uint8_t>& y) {
                loops.conversion(static_cast<MapType>(from), static_cast<MapType>(to))(a.data(), nullptr, nullptr,
                                                                                       y.data(), n);
            };
            convert(reference, want);
            for (auto& candidate : contest.candidates) {
                convert(candidate.kernel(), got);
                const int64_t at = map_difference(static_cast<MapType>(to), want, got, n);
                candidate.check.expect(at < 0, [&] {
                    return "type " + std::to_string(from) + " to " + std::to_string(to) + " differs at " +
                           std::to_string(at);
                });
            }
        }
    for (const ExactFunction& f : exact_functions()) {
        double worst = 0;
        float where = 0;
        for (int64_t i = 0; i < (quick ? 300 : 20000); ++i) {
            const float x = static_cast<float>(f.low + (f.high - f.low) * random.unit());
            float y = 0;
            reference.operation(f.operation, MapType::f32)(&x, nullptr, nullptr, &y, 1);
            const double exact = f.compute(static_cast<double>(x));
            if (static_cast<float>(exact) == y) continue;
            const double off = std::fabs(static_cast<double>(y) - exact) / std::max(std::fabs(exact), 1.2e-38);
            if (off > worst || off != off) {
                worst = off != off ? 1 : off;
                where = x;
            }
        }
        contest.contract.expect(worst < 1.2e-7, [&] {
            return std::string(map_name(f.operation)) + " of " + std::to_string(where) + " is off by " +
                   std::to_string(worst * 1e9) + " billionths";
        });
    }
    contest.close(report);
}

}  // namespace zeropoint::check
