// Pooling and bilinear kernels against their references. They see tables of windows and taps, so they are run through
// the operators that make these, once for each instruction set.
#pragma once

#include "check/inputs.h"
#include "check/kernels.h"
#include "check/report.h"
#include "cpu/isa.h"
#include "operators/pooling.h"
#include "operators/resampling.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace zeropoint::check {

// The checks of one operation: its reference, which must stay inside its output, and every level this machine can run,
// which must give the same bytes.
class LevelContest {
public:
    LevelContest(Report& report, const std::string& operation) : contract_(operation, "reference") {
        for (const Listed& k : listed()) {
            if (k.operation != operation || k.isa == Isa::reference) continue;
            const std::string missing = why_not(k.isa);
            if (missing.empty())
                levels_.emplace_back(k.isa, Check(operation, isa_name(k.isa)));
            else
                report.skip(operation, isa_name(k.isa), missing);
        }
    }

    // Runs operate(x, y) under each of them, on `in` random bytes, and compares the `out` bytes of output.
    template <class Operate>
    void run(Random& random, int64_t in, int64_t out, const std::string& what, const Operate& operate) {
        constexpr uint8_t kGuard = 0xA5;
        constexpr size_t kRoom = 64;
        const std::vector<uint8_t> x = integers<uint8_t>(random, in);
        const Isa before = active_isa();
        const auto result = [&](Isa isa) {
            std::vector<uint8_t> y(static_cast<size_t>(out) + kRoom, kGuard);
            set_active_isa(isa);
            operate(x.data(), y.data());
            return y;
        };
        const std::vector<uint8_t> want = result(Isa::reference);
        contract_.expect(std::all_of(want.end() - kRoom, want.end(), [](uint8_t b) { return b == kGuard; }),
                         "wrote outside its output");
        for (auto& [isa, check] : levels_) {
            const std::vector<uint8_t> got = result(isa);
            const auto where = std::mismatch(want.begin(), want.end(), got.begin());
            check.expect(where.first == want.end(), [&] {
                return what + ": byte " + std::to_string(where.first - want.begin()) + " of the reference is " +
                       std::to_string(*where.first) + ", of this kernel " + std::to_string(*where.second);
            });
        }
        set_active_isa(before);
    }

    void close(Report& report) const {
        report.add(contract_);
        for (const auto& [isa, check] : levels_) report.add(check);
    }

private:
    Check contract_;
    std::vector<std::pair<Isa, Check>> levels_;
};

struct SpatialCase {
    int64_t images, channels, depth, height, width;
    int64_t places() const { return depth * height * width; }
    std::string describe() const {
        return std::to_string(images) + "x" + std::to_string(channels) + "x" + std::to_string(depth) + "x" +
               std::to_string(height) + "x" + std::to_string(width);
    }
};

inline std::vector<SpatialCase> spatial_cases(bool quick) {
    std::vector<SpatialCase> cases = {{2, 1, 1, 9, 37}, {1, 3, 1, 7, 11}, {2, 64, 1, 5, 6}, {1, 70, 2, 4, 5}};
    if (!quick) {
        cases.push_back({1, 1, 3, 20, 150});
        cases.push_back({1, 130, 1, 12, 13});
        cases.push_back({3, 16, 1, 1, 67});
    }
    return cases;
}

template <class Pool>
void each_pool(LevelContest& contest, bool quick, const std::vector<IntType>& types, int64_t dilation,
               const Pool& pool) {
    Random random(23);
    for (const SpatialCase& c : spatial_cases(quick))
        for (IntType type : types)
            for (int64_t kernel : {1, 2, 3})
                for (int64_t stride : {1, 2}) {
                    PoolWindows w;
                    PoolTensor t;
                    const std::array<int64_t, 3> size = {c.depth, c.height, c.width};
                    int64_t out = 1;
                    for (size_t axis = 0; axis < 3; ++axis) {
                        const int64_t k = size[axis] <= dilation * (kernel - 1) ? 1 : kernel;
                        w.kernel[axis] = k;
                        w.stride[axis] = stride;
                        w.padding[axis] = k / 2;
                        w.dilation[axis] = dilation;
                        t.in[axis] = size[axis];
                        t.out[axis] = (size[axis] + 2 * (k / 2) - dilation * (k - 1) - 1) / stride + 1;
                        out *= t.out[axis];
                    }
                    const int64_t bytes = type == IntType::s32 ? 4 : 1;
                    const auto run = [&](const uint8_t* x, uint8_t* y) {
                        t.x = x;
                        t.y = y;
                        t.type = type;
                        t.images = c.images;
                        t.channels = c.channels;
                        pool(t, w);
                    };
                    const std::string what = c.describe() + ", kernel " + std::to_string(kernel) + ", stride " +
                                             std::to_string(stride) + ", " + name(type);
                    contest.run(random, c.images * c.channels * c.places() * bytes, c.images * c.channels * out * bytes,
                                what, run);
                }
}

inline void check_max_pool(Report& report, bool quick) {
    LevelContest contest(report, "max_pool");
    for (int64_t dilation : {1, 2})
        each_pool(contest, quick, {IntType::u8, IntType::s8, IntType::s32}, dilation,
                  [](const PoolTensor& t, const PoolWindows& w) { max_pool(t, w); });
    contest.close(report);
}

inline void check_average_pool(Report& report, bool quick) {
    LevelContest contest(report, "average_pool");
    const auto rule_of = [](int averaging, IntType type) {
        AverageRule rule;
        rule.averaging = static_cast<Averaging>(averaging);
        rule.count_include_pad = averaging % 2 == 0;
        rule.scale = averaging == 0 ? 0.0413f : 1.0f;
        rule.zero_point = 3;
        rule.qmin = type == IntType::u8 ? 0.0f : -128.0f;
        rule.qmax = type == IntType::u8 ? 255.0f : 127.0f;
        return rule;
    };
    Random random(31);
    for (int averaging = 0; averaging < 5; ++averaging) {  // 0 with a scale, as QNNPACK averages
        each_pool(contest, quick, {IntType::u8, IntType::s8}, 1,
                  [&](const PoolTensor& t, const PoolWindows& w) { average_pool(t, w, rule_of(averaging, t.type)); });
        for (const SpatialCase& c : spatial_cases(quick))
            for (IntType type : {IntType::u8, IntType::s8})
                for (int64_t out : {1, 3}) {
                    PoolTensor t;
                    t.type = type;
                    t.images = c.images;
                    t.channels = c.channels;
                    t.in = {c.depth, c.height, c.width};
                    t.out = {1, out, out};
                    contest.run(random, c.images * c.channels * c.places(), c.images * c.channels * out * out,
                                c.describe() + ", adaptive " + std::to_string(out) + ", " + name(type),
                                [&](const uint8_t* x, uint8_t* y) {
                                    t.x = x;
                                    t.y = y;
                                    adaptive_average_pool(t, rule_of(averaging, type));
                                });
                }
    }
    contest.close(report);
}

inline void check_bilinear(Report& report, bool quick) {
    LevelContest contest(report, "bilinear");
    Random random(29);
    for (const SpatialCase& c : spatial_cases(quick))
        for (IntType type : {IntType::u8, IntType::s8})
            for (int variant = 0; variant < 4; ++variant) {
                BilinearRule rule;
                rule.align_corners = variant % 2 == 1;
                rule.fused = variant >= 2;
                rule.zero_point = 3;
                rule.qmin = type == IntType::u8 ? 0.0f : -128.0f;
                rule.qmax = type == IntType::u8 ? 255.0f : 127.0f;
                ResampleTensor t;
                t.type = type;
                t.images = c.images * c.depth;
                t.channels = c.channels;
                t.in_height = c.height;
                t.in_width = c.width;
                t.out_height = c.height * 2 - 1;
                t.out_width = c.width * 2 + 1;
                const int64_t planes = t.images * t.channels;
                contest.run(random, planes * c.height * c.width, planes * t.out_height * t.out_width,
                            c.describe() + ", variant " + std::to_string(variant) + ", " + name(type),
                            [&](const uint8_t* x, uint8_t* y) {
                                t.x = x;
                                t.y = y;
                                bilinear(t, rule);
                            });
            }
    contest.close(report);
}

}  // namespace zeropoint::check
