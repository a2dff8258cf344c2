// attention kernels against their reference: any sizes, types, strides and masks.
#pragma once

#include "check/inputs.h"
#include "check/kernels.h"
#include "check/report.h"

#include <string>
#include <vector>

namespace zeropoint::check {

// Arguments over memory of their own.
class AttentionCase {
public:
    AttentionCase(Random& random, int64_t rows, int64_t columns, int64_t depth, int64_t width) {
        args.batch[4] = random.between(1, 2);
        args.batch[5] = random.between(1, 3);
        args.rows = rows;
        args.columns = columns;
        args.depth = depth;
        args.width = width;
        matrix(random, args.q, q_, rows, depth);
        matrix(random, args.k, k_, columns, depth);
        matrix(random, args.v, v_, columns, width);
        const auto zero_point = [&](IntType type) { return static_cast<int32_t>(least_of(type) + random.below(256)); };
        const auto inverse = [](double n) { return static_cast<float>(1.0 / n); };
        args.score_multiplier = inverse(60.0 * static_cast<double>(depth) * (0.5 + random.unit()));
        args.score_scale = static_cast<float>(0.2 * random.unit() + 0.001);
        args.score_zero_point = zero_point(args.q.type);
        for (int i = static_cast<int>(random.below(4)); i > 0; --i) operation(random);
        args.safe = random.below(2) != 0;
        args.share_type = random.of(kTypes);
        args.share_inverse = static_cast<float>(static_cast<double>(columns) * 100 * (random.unit() + 0.1));
        args.share_zero_point = zero_point(args.share_type);
        args.share_low = least_of(args.share_type) + static_cast<int32_t>(random.below(3));
        args.share_high = least_of(args.share_type) + 255 - static_cast<int32_t>(random.below(3));
        args.multiplier = inverse(40.0 * static_cast<double>(columns) * (0.5 + random.unit()));
        args.zero_point = zero_point(args.share_type);
        // Rows of all heads next to each other, as (..., rows, heads, width) has them.
        args.y_heads.along[5] = width;
        args.y_row = args.batch[5] * width;
        args.y_heads.along[4] = rows * args.y_row;
    }
    AttentionCase(const AttentionCase&) = delete;
    AttentionCase& operator=(const AttentionCase&) = delete;

    int64_t outputs() const { return args.heads() * args.rows * args.width; }

    AttentionArgs args;

private:
    static constexpr IntType kTypes[] = {IntType::u8, IntType::s8};

    void matrix(Random& random, AttentionMatrix& m, std::vector<uint8_t>& bytes, int64_t rows, int64_t columns) {
        m.type = random.of(kTypes);
        m.zero_point = static_cast<int32_t>(least_of(m.type) + random.below(256));
        m.row = columns + random.below(5);
        m.heads.along[5] = random.below(3) == 0 ? 0 : rows * m.row;
        m.heads.along[4] = args.batch[5] * rows * m.row;
        bytes.resize(static_cast<size_t>(args.heads() * rows * m.row));
        for (uint8_t& b : bytes) b = static_cast<uint8_t>(random.bits());
        m.x = bytes.data();
    }
    void operation(Random& random) {
        ScoreOperation o;
        o.kind = static_cast<ScoreOperationKind>(random.below(6));
        o.number = o.kind == ScoreOperationKind::keep || o.kind == ScoreOperationKind::replace
                       ? -kInf
                       : static_cast<float>(random.unit() + 0.25);
        o.column = random.below(4) == 0 ? 0 : 1;
        o.row = random.below(2) == 0 ? 0 : args.columns;
        o.heads.along[5] = random.below(2) == 0 ? 0 : args.rows * args.columns;
        const size_t count = static_cast<size_t>(args.batch[5] * args.rows * args.columns);
        if (o.kind == ScoreOperationKind::add_mask) {
            float_masks_.emplace_back(count);
            for (float& m : float_masks_.back())
                m = random.below(3) == 0 ? -kInf : static_cast<float>(random.unit() - 0.5);
            o.mask = float_masks_.back().data();
        } else {
            bool_masks_.emplace_back(count);
            for (uint8_t& m : bool_masks_.back()) m = static_cast<uint8_t>(random.below(2));
            o.mask = bool_masks_.back().data();
        }
        args.operations[args.operation_count++] = o;
    }

    std::vector<uint8_t> q_, k_, v_;
    std::vector<std::vector<float>> float_masks_;
    std::vector<std::vector<uint8_t>> bool_masks_;
};

inline void check_attention(Report& report, bool quick) {
    Contest<AttentionFn> contest(report, "attention", &Kernels::attention);
    Random random(71);
    for (int64_t rows : {1, 3, 4, 7, 66})
        for (int64_t columns : {1, 3, 8, 15, 16, 17, 24, 47, 64, 65, quick ? 130 : 1030})
            for (int64_t depth : {1, 5, 32, quick ? 67 : 130})
                for (int64_t width : {1, 16, 40}) {
                    const AttentionCase c(random, rows, columns, depth, width);
                    AttentionArgs a = c.args;
                    std::vector<uint8_t> memory(static_cast<size_t>(a.memory()) + 64);
                    uint8_t* const aligned =
                        memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
                    Guarded<uint8_t> want(c.outputs()), got(c.outputs());
                    a.y = want.data();
                    contest.reference(a, 0, a.items(), aligned);
                    contest.contract.expect(want.untouched_outside({0, c.outputs()}), "wrote outside its output");
                    for (auto& candidate : contest.candidates) {
                        got.reset();
                        a.y = got.data();
                        const int64_t cut = random.between(0, a.items());
                        candidate.kernel(a, 0, cut, aligned);
                        candidate.kernel(a, cut, a.items(), aligned);
                        const int64_t at = got.difference(want);
                        candidate.check.expect(at == got.kNone, [&] {
                            return "rows " + std::to_string(rows) + ", columns " + std::to_string(columns) +
                                   ", depth " + std::to_string(depth) + ", width " + std::to_string(width) +
                                   ": output " + std::to_string(at) + " is " + got.show(at) + ", not " + want.show(at);
                        });
                    }
                }
    contest.close(report);
}

}  // namespace zeropoint::check
