// moments, normalize and softmax against their references: the kernels themselves, and the norms made of them.
#pragma once

#include "check/inputs.h"
#include "check/report.h"
#include "check/spatial.h"
#include "kernels/registry.h"
#include "operators/norms.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

namespace zeropoint::check {

// Row lengths around the blocks of all instruction sets.
inline std::vector<int64_t> norm_lengths(bool quick) {
    std::vector<int64_t> lengths = {1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 130, 257};
    if (!quick) lengths.insert(lengths.end(), {511, 1000, 4097, 140001});
    return lengths;
}

inline void check_moments(Report& report, bool quick) {
    LevelContest contest(report, "moments");
    Random random(41);
    for (int64_t length : norm_lengths(quick))
        for (IntType type : {IntType::u8, IntType::s8})
            for (int64_t rows : {1, 3, length < 300 ? 300 : 2})
                for (bool across : {false, true})
                    for (bool wanted : {false, true}) {
                        const int64_t images = across ? 2 : 1, out = across ? images * length : rows;
                        const std::string what = std::to_string(rows) + " rows of " + std::to_string(length) + ", " +
                                                 name(type) + (across ? ", across" : "");
                        contest.run(random, images * rows * length, 16 * out, what, [&](const uint8_t* x, uint8_t* y) {
                            std::vector<int64_t> sums(static_cast<size_t>(2 * out));
                            MomentsArgs a;
                            a.x = x;
                            a.type = type;
                            a.length = length;
                            a.across = across;
                            a.rows = rows;
                            a.sums = sums.data();
                            if (wanted) a.squares = sums.data() + out;
                            kernels().moments(a, 0, across ? images * a.blocks() : rows);
                            std::memcpy(y, sums.data(), sums.size() * sizeof(int64_t));
                        });
                    }
    // The largest sums of squares there are, in rows longer than what a lane can hold.
    const std::vector<uint8_t> largest(quick ? 300000 : 3000000, 255);
    Check limits("moments", "largest sums");
    int64_t sum = 0, squares = 0;
    MomentsArgs a;
    a.x = largest.data();
    a.length = static_cast<int64_t>(largest.size());
    a.sums = &sum;
    a.squares = &squares;
    kernels().moments(a, 0, 1);
    limits.expect(sum == 255 * a.length && squares == 65025 * a.length, "a sum overflowed");
    report.add(limits);
    contest.close(report);
}

// Ordinary numbers, ties, and what overflows or is none.
inline std::vector<float> norm_parameters(Random& random, int64_t n, float size) {
    const float special[] = {
        0.0f, 0.5f,  1e30f, -1e30f, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        2.5f, -0.25f};
    std::vector<float> values;
    const std::vector<uint8_t> bytes = integers<uint8_t>(random, 2 * n);
    for (int64_t i = 0; i < n; ++i) {
        const uint8_t kind = bytes[static_cast<size_t>(2 * i)], value = bytes[static_cast<size_t>(2 * i + 1)];
        values.push_back(kind < 32 ? special[kind % 8] : (static_cast<float>(value) - 128.0f) * size);
    }
    return values;
}

inline void check_normalize(Report& report, bool quick) {
    LevelContest contest(report, "normalize");
    Random random(43);
    constexpr int64_t kRows = 6;
    for (int64_t length : norm_lengths(quick)) {
        if (length > 5000) continue;
        const auto parameters = [&](float size) { return norm_parameters(random, kRows * length, size); };
        const std::vector<float> center = parameters(1.0f), factor = parameters(0.01f), weight = parameters(0.03f),
                                 bias = parameters(0.5f);
        for (IntType type : {IntType::u8, IntType::s8})
            for (ByRow by_row : {ByRow::all, ByRow::center, ByRow::none})
                for (int variant = 0; variant < 8; ++variant) {
                    NormalizeArgs a;
                    a.type = type;
                    a.length = length;
                    a.by_row = by_row;
                    a.step = variant % 2;
                    a.set_rows = 2;
                    a.center = center.data();
                    a.factor = factor.data();
                    a.weight = weight.data();
                    a.bias = bias.data();
                    a.joined = variant / 2 % 2 == 1;
                    a.inverse = variant < 4 ? 1.0f : 4.0f;
                    a.lo = type == IntType::u8 ? 0 : -128;
                    a.hi = a.lo + 255;
                    a.zero_point = variant % 3 == 0 ? a.lo : variant % 3 == 1 ? a.hi : 5;
                    if (variant == 5) a.lo = a.zero_point;
                    contest.run(random, kRows * length, kRows * length,
                                std::to_string(length) + " elements by " + std::to_string(static_cast<int>(by_row)) +
                                    ", variant " + std::to_string(variant) + ", " + name(type),
                                [&](const uint8_t* x, uint8_t* y) {
                                    a.x = x;
                                    a.y = y;
                                    kernels().normalize(a, 0, kRows);
                                });
                }
    }
    const std::vector<float> weight = norm_parameters(random, 4096, 0.02f), bias = norm_parameters(random, 4096, 0.1f),
                             mean = norm_parameters(random, 4096, 0.1f);
    std::vector<float> var(4096);
    for (size_t i = 0; i < var.size(); ++i) var[i] = static_cast<float>(i % 7) * 0.25f;
    for (const SpatialCase& c : spatial_cases(quick))
        for (IntType type : {IntType::u8, IntType::s8})
            for (bool last : {false, true}) {
                const NormShape shape{c.images, c.channels, c.places(), last};
                NormTensor t;
                t.type = type;
                t.scale = 0.05f;
                t.zero_point = 7;
                t.y_scale = 0.03f;
                t.y_zero_point = 9;
                t.lo = type == IntType::u8 ? 0 : -128;
                t.hi = t.lo + 255;
                const auto run = [&](const std::string& what, const auto& norm) {
                    contest.run(random, shape.numel(), shape.numel(),
                                what + " of " + c.describe() + ", " + name(type) + (last ? ", channels last" : ""),
                                [&](const uint8_t* x, uint8_t* y) {
                                    t.x = x;
                                    t.y = y;
                                    norm();
                                });
                };
                const ChannelParams params{weight.data(), bias.data()};
                run("batch_norm", [&] { batch_norm(t, shape, params, mean.data(), var.data(), 1e-5f); });
                run("group_norm", [&] { group_norm(t, shape, 1, params, 1e-5f); });
                run("instance_norm", [&] { group_norm(t, shape, c.channels, {}, 1e-5f); });
                if (c.places() <= 4096)
                    run("layer_norm", [&] { layer_norm(t, c.images * c.channels, c.places(), params, 1e-5f); });
            }
    contest.close(report);
}

inline void check_softmax(Report& report, bool quick) {
    LevelContest contest(report, "softmax");
    Random random(47);
    for (int64_t length : norm_lengths(quick))
        for (IntType type : {IntType::u8, IntType::s8})
            for (float scale : {1e-4f, 0.02f, 3.0f})
                for (int64_t inner : {1, 5, 70}) {
                    if (length * inner > 20000) continue;
                    NormTensor t;
                    t.type = type;
                    t.scale = scale;
                    t.y_scale = inner == 5 ? 1e-12f : 1.0f / 256;
                    t.lo = type == IntType::u8 ? 0 : -128;
                    t.hi = t.lo + 255;
                    t.y_zero_point = t.lo;
                    contest.run(random, 3 * length * inner, 3 * length * inner,
                                "3 x " + std::to_string(length) + " x " + std::to_string(inner) + ", " + name(type),
                                [&](const uint8_t* x, uint8_t* y) {
                                    t.x = x;
                                    t.y = y;
                                    softmax(t, 3, length, inner);
                                });
                }
    contest.close(report);
}

}  // namespace zeropoint::check
