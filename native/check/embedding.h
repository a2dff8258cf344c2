// embedding and quantize_range against their references.
#pragma once

#include "check/inputs.h"
#include "check/kernels.h"
#include "check/report.h"
#include "kernels/half.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

namespace zeropoint::check {

// A table whose last byte is the last of its memory: a read past a row shows under AddressSanitizer.
inline std::vector<uint8_t> embedding_table(Random& random, const EmbeddingArgs& a) {
    std::vector<uint8_t> table = integers<uint8_t>(random, a.rows * a.row_bytes());
    for (int64_t r = 0; r < a.rows; ++r) {
        uint8_t* end = table.data() + r * a.row_bytes() + a.value_bytes();
        const float parameters[2] = {static_cast<float>(random.unit() - 0.3) * std::ldexp(1.0f, -static_cast<int>(r)),
                                     static_cast<float>(random.unit() * 8 - 4)};
        const uint16_t halves[2] = {to_half(parameters[0]), to_half(parameters[1])};
        if (a.bits == 8)
            std::memcpy(end, parameters, sizeof parameters);
        else
            std::memcpy(end, halves, sizeof halves);
    }
    table.shrink_to_fit();
    return table;
}

inline std::string describe(const EmbeddingArgs& a) {
    constexpr const char* kModes[] = {"sum", "mean", "max"};
    return std::to_string(a.columns) + " columns of " + std::to_string(a.bits) + " bits, " +
           kModes[static_cast<int>(a.mode)] + (a.weights != nullptr ? ", weighted" : "") +
           (a.pruned ? ", pruned" : "") + (a.offsets != nullptr ? ", offsets" : ", fixed length");
}

inline void check_embedding(Report& report, bool quick) {
    Contest<EmbeddingFn> contest(report, "embedding", &Kernels::embedding);
    Random random(41);
    const auto compare = [&](EmbeddingArgs& a, int64_t bags, Span span) {
        Guarded<float> want(bags * a.columns), got(bags * a.columns);
        a.y = want.data();
        const int64_t answer = contest.reference(a, span.begin, span.end);
        contest.contract.expect(want.untouched_outside({span.begin * a.columns, span.end * a.columns}),
                                "wrote outside its bags");
        for (auto& candidate : contest.candidates) {
            got.reset();
            a.y = got.data();
            const int64_t mine = candidate.kernel(a, span.begin, span.end);
            candidate.check.expect(mine == answer, [&] {
                return describe(a) + ": the reference answers " + std::to_string(answer) + ", this kernel " +
                       std::to_string(mine);
            });
            if (answer >= 0) continue;  // y is unspecified
            candidate.check.expect(got.difference(want) == got.kNone, [&] {
                const int64_t at = got.difference(want);
                return describe(a) + ": at " + std::to_string(at) + " the reference gives " + want.show(at) +
                       ", this kernel " + got.show(at);
            });
        }
    };
    constexpr int64_t kBags = 9;
    for (int bits : {8, 4, 2})
        for (int64_t columns = 0; columns <= (quick ? 40 : 300); ++columns)
            for (int variant = 0; variant < (quick ? 2 : 6); ++variant) {
                EmbeddingArgs a;
                a.rows = 13;
                a.columns = columns;
                a.bits = bits;
                a.mode = static_cast<BagMode>((variant + columns) % 3);
                a.pruned = random.below(2) != 0;
                a.length = random.between(0, 5);
                const bool cut = random.below(2) != 0;
                std::vector<int64_t> offsets{0};
                for (int64_t bag = 0; bag < kBags; ++bag)
                    offsets.push_back(cut ? offsets.back() + random.below(30) * random.below(2)
                                          : offsets.back() + a.length);
                const int64_t count = offsets.back();
                std::vector<int64_t> picks(static_cast<size_t>(count));
                for (int64_t& p : picks) p = random.between(a.pruned ? -1 : 0, a.rows - 1);
                std::vector<float> weights(picks.size());
                for (float& w : weights) w = static_cast<float>(random.unit() * 4 - 2);
                const std::vector<uint8_t> table = embedding_table(random, a);
                a.table = table.data();
                a.offsets = cut ? offsets.data() : nullptr;
                a.weights = random.below(2) != 0 ? weights.data() : nullptr;
                for (const Span& span : spans(random, kBags)) {
                    // The picks of these bags only, at the end of their memory.
                    a.picks_begin = offsets[static_cast<size_t>(span.begin)];
                    a.picks_end = offsets[static_cast<size_t>(span.end)];
                    std::vector<int64_t> part(picks.begin() + a.picks_begin, picks.begin() + a.picks_end);
                    a.picks = part.data();
                    compare(a, kBags, span);
                    if (part.empty() || columns == 0) continue;
                    constexpr int64_t kNoRows[] = {INT64_MIN, INT64_MAX, int64_t{1} << 40, -2, 13};
                    part[static_cast<size_t>(random.below(static_cast<int64_t>(part.size())))] = random.of(kNoRows);
                    compare(a, kBags, span);
                }
            }
    contest.close(report);
}

inline void check_quantize_range(Report& report, bool quick) {
    Contest<QuantizeRangeFn> contest(report, "quantize_range", &Kernels::quantize_range);
    Random random(43);
    const std::vector<float> limits{255.0f, 15.0f, 3.0f};
    each_case(random, quick, limits, [&](const GridCase& c, float qmax, const std::vector<Span>& parts) {
        const float scale = std::ldexp(1.0f, static_cast<int>(random.between(-8, 4)));
        const std::vector<float> x = numbers(random, c.shape.numel(), scale);
        QuantizeRangeArgs a;
        a.x = x.data();
        a.low = random.below(2) != 0 ? -32.0f * scale : static_cast<float>(random.unit()) * scale;
        a.inv = random.below(8) == 0 ? -1.0f / scale : 1.0f / scale;
        a.qmax = qmax;
        compare_parts<uint8_t>(contest, "y", c, parts, c.shape.numel(), 1, [&](auto kernel, uint8_t* y, Span part) {
            a.y = y;
            kernel(a, part.begin, part.end);
        });
    });
    contest.close(report);
}

}  // namespace zeropoint::check
