// group_gemm and cache_attention kernels against their references, and those against plain sums in float64.
#pragma once

#include "check/inputs.h"
#include "check/kernels.h"
#include "check/recurrent.h"
#include "kernels/half.h"

#include <algorithm>
#include <cmath>

namespace zeropoint::check {

struct GroupCase {
    int64_t rows, outputs, groups, group;
    int bits;
    std::vector<float> x;
    std::vector<uint8_t> weights;
    std::vector<uint16_t> scale, minimum;
    std::vector<float> bias, residual;

    int64_t inputs() const { return groups * group; }
    std::string describe() const {
        return std::to_string(bits) + " bits, " + std::to_string(rows) + "x" + std::to_string(outputs) + "x" +
               std::to_string(inputs()) + ", groups of " + std::to_string(group) +
               (minimum.empty() ? "" : ", with minima");
    }
};

inline GroupCase group_case(Random& random, int64_t rows, int64_t outputs, int64_t groups, int64_t group, int bits) {
    GroupCase c{rows, outputs, groups, group, bits, {}, {}, {}, {}, {}, {}};
    const int64_t panels = (outputs + kGroupPanel - 1) / kGroupPanel;
    c.x = numbers(random, rows * c.inputs(), 0.125f);
    for (int64_t g = 0; g < rows * groups; ++g) {
        float* x = c.x.data() + g * group;
        switch (random.below(6)) {  // most groups are of plain numbers
            case 0: break;
            case 1: std::fill_n(x, group, 0.0f); break;
            case 2: std::fill_n(x, group, random.below(2) != 0 ? 3.0f : -3.0f); break;
            default:
                for (int64_t k = 0; k < group; ++k) x[k] = static_cast<float>(random.unit() * 4 - 2);
        }
    }
    for (int64_t i = panels * c.inputs() / kGroupUnit * group_unit_bytes(bits); i > 0; --i)
        c.weights.push_back(static_cast<uint8_t>(random.below(8) != 0 ? random.bits() : 0));
    const auto halves = [&] {
        std::vector<uint16_t> made;
        for (int64_t i = panels * groups * kGroupPanel; i > 0; --i)
            made.push_back(to_half(static_cast<float>(random.unit() * 0.1 - 0.05)));
        return made;
    };
    c.scale = halves();
    if (random.below(2) != 0) c.minimum = halves();
    if (random.below(2) != 0) c.bias = numbers(random, outputs, 0.0f);
    if (random.below(2) != 0)
        for (int64_t i = 0; i < rows * outputs; ++i) c.residual.push_back(static_cast<float>(random.unit()));
    return c;
}

// Activations as a kernel prepares them.
struct PreparedRows {
    std::vector<int8_t> q;
    std::vector<float> scale;
    std::vector<int32_t> sum;

    PreparedRows(const GroupCase& c, const GroupGemmKernel& kernel)
        : q(static_cast<size_t>(c.rows * c.inputs())),
          scale(static_cast<size_t>(c.rows * c.groups)),
          sum(scale.size()) {
        for (int64_t row = 0; row < c.rows; row += kGroupTile)
            kernel.prepare(c.x.data() + row * c.inputs(), std::min(kGroupTile, c.rows - row), c.groups, c.group,
                           q.data() + row * c.inputs(), scale.data() + row * c.groups, sum.data() + row * c.groups);
    }
    bool same(const PreparedRows& o) const {
        for (size_t i = 0; i < scale.size(); ++i)
            if (scale[i] != o.scale[i] && !(std::isnan(scale[i]) && std::isnan(o.scale[i]))) return false;
        return q == o.q && sum == o.sum;
    }
};

inline void multiply_group(const GroupCase& c, const PreparedRows& x, const GroupGemmKernel& kernel, float* y) {
    GroupGemmArgs a;
    a.x = {x.q.data(), x.scale.data(), x.sum.data()};
    a.rows = c.rows;
    a.groups = c.groups;
    a.group = c.group;
    a.bits = c.bits;
    a.weights = c.weights.data();
    a.scale = c.scale.data();
    a.minimum = c.minimum.empty() ? nullptr : c.minimum.data();
    a.outputs = c.outputs;
    a.bias = c.bias.empty() ? nullptr : c.bias.data();
    a.residual = c.residual.empty() ? nullptr : c.residual.data();
    a.y = y;
    kernel.multiply(a, 0, (c.outputs + kGroupPanel - 1) / kGroupPanel);
}

inline void check_group_gemm(Report& report, bool quick) {
    Contest<GroupGemmFn> contest(report, "group_gemm", &Kernels::group_gemm);
    Random random(91);
    const auto one = [&](int64_t rows, int64_t outputs, int64_t groups, int64_t group, int bits) {
        const GroupCase c = group_case(random, rows, outputs, groups, group, bits);
        const PreparedRows x(c, contest.reference());
        for (size_t i = 0; i < x.scale.size(); ++i) {  // no number is off by more than half a step
            contest.contract.expect(std::isnan(x.scale[i]) || (x.scale[i] >= 0 && std::abs(x.sum[i]) <= 127 * c.group),
                                    "a group has a wrong scale or sum");
        }
        Guarded<float> want(rows * outputs), got(rows * outputs);
        multiply_group(c, x, contest.reference(), want.data());
        contest.contract.expect(want.untouched_outside({0, rows * outputs}), "wrote outside its output");
        for (auto& candidate : contest.candidates) {
            const PreparedRows own(c, candidate.kernel());
            candidate.check.expect(own.same(x), [&] { return c.describe() + ": activations differ"; });
            got.reset();
            multiply_group(c, own, candidate.kernel(), got.data());
            const int64_t at = got.difference(want);
            candidate.check.expect(at == got.kNone, [&] { return place(c.describe().c_str(), at, want, got); });
        }
    };
    for (int bits : {4, 8})
        for (int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 17})
            for (int64_t outputs : {1, 16, 17, 48})
                for (int64_t group : {32, 64, 256})
                    if (!quick || (rows + outputs + group) % 3 == 0) one(rows, outputs, 1 + rows % 3, group, bits);
    // The largest products that there are.
    for (int bits : {4, 8}) {
        GroupCase c = group_case(random, 2, 16, 1, kMostGroup, bits);
        for (size_t i = 0; i < c.x.size(); ++i) c.x[i] = i < c.x.size() / 2 ? 1.0f : -1.0f;
        for (const uint8_t byte : {uint8_t{0}, uint8_t{255}}) {
            std::fill(c.weights.begin(), c.weights.end(), byte);
            const PreparedRows x(c, contest.reference());
            Guarded<float> want(32), got(32);
            multiply_group(c, x, contest.reference(), want.data());
            for (auto& candidate : contest.candidates) {
                got.reset();
                multiply_group(c, x, candidate.kernel(), got.data());
                candidate.check.expect(got.difference(want) == got.kNone, "the largest products differ");
            }
        }
    }
    contest.close(report);
}

inline void check_cache_attention(Report& report, bool quick) {
    Contest<CacheAttentionFn> contest(report, "cache_attention", &Kernels::cache_attention);
    Random random(92);
    for (const CacheType type : {CacheType::s8, CacheType::f16, CacheType::f32})
        for (int64_t heads : {1, 2, 3, 4, 5, 8})
            for (int64_t dim : {16, 48, 64, 80, 128})
                for (const auto& [begin, end] :
                     {std::pair<int64_t, int64_t>{0, 1}, {0, 16}, {3, 20}, {17, 70}, {0, 131}}) {
                    if (quick && (heads + dim + end) % 4 != 0) continue;
                    const int64_t places = (end + kCacheBlock - 1) / kCacheBlock * kCacheBlock, count = places * dim;
                    std::vector<float> q(static_cast<size_t>(heads * dim)), numbers(static_cast<size_t>(2 * count)),
                        scales(static_cast<size_t>(2 * places));
                    for (float& v : q) v = static_cast<float>(random.unit() * 4 - 2);
                    for (float& v : numbers) v = static_cast<float>(random.unit() * 2 - 1);
                    for (float& v : scales) v = static_cast<float>(random.unit() * 0.02);
                    std::vector<int8_t> bytes;
                    std::vector<uint16_t> halves;
                    for (float v : numbers) {
                        bytes.push_back(static_cast<int8_t>(std::nearbyint(v * 127.4f - 0.4f)));
                        halves.push_back(to_half(v));
                    }
                    CacheAttentionArgs a;
                    a.q = q.data();
                    a.heads = heads;
                    a.dim = dim;
                    a.type = type;
                    const auto keys_and_values = [&](const auto& cached) {
                        a.k = cached.data();
                        a.v = cached.data() + count;
                    };
                    if (type == CacheType::s8) {
                        keys_and_values(bytes);
                        a.k_scale = scales.data();
                        a.v_scale = scales.data() + places;
                    } else if (type == CacheType::f16) {
                        keys_and_values(halves);
                    } else {
                        keys_and_values(numbers);
                    }
                    a.begin = begin;
                    a.end = end;
                    a.scale = 0.125f;
                    a.cap = random.below(3) == 0 ? 30.0f : 0.0f;
                    std::vector<float> memory(
                        static_cast<size_t>(cache_attention_scratch(heads, dim, begin, end) + 16));
                    const auto at = reinterpret_cast<uintptr_t>(memory.data());
                    a.scratch = memory.data() + ((at + 63) / 64 * 64 - at) / sizeof(float);
                    Guarded<float> want(heads * dim), got(heads * dim);
                    a.y = want.data();
                    contest.reference(a);
                    contest.contract.expect(want.untouched_outside({0, heads * dim}), "wrote outside its output");
                    for (auto& candidate : contest.candidates) {
                        got.reset();
                        a.y = got.data();
                        candidate.kernel(a);
                        const int64_t differs = got.difference(want);
                        candidate.check.expect(differs == got.kNone,
                                               [&] { return place("attention", differs, want, got); });
                    }
                }
    contest.close(report);
}

}  // namespace zeropoint::check
