// Recurrent cells and products with float16 weights against their references, sigmoid and tanh against float64, and
// whole sequences on any number of threads.
#pragma once

#include "check/inputs.h"
#include "check/kernels.h"
#include "check/matmul.h"
#include "check/operators.h"
#include "check/report.h"
#include "operators/recurrent.h"
#include "operators/step_threads.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <new>
#include <numeric>
#include <string>
#include <vector>

namespace zeropoint::check {

inline std::string place(const char* what, int64_t at, const Guarded<float>& want, const Guarded<float>& got) {
    return std::string(what) + "[" + std::to_string(at) + "]: the reference gives " + want.show(at) + ", this kernel " +
           got.show(at);
}

// Units in the last place between a and the exact value.
inline double ulps(float a, double exact) {
    const float nearest = std::fabs(static_cast<float>(exact));
    const double ulp = static_cast<double>(std::nextafter(nearest, INFINITY)) - static_cast<double>(nearest);
    return std::fabs(static_cast<double>(a) - exact) / ulp;
}

// Both functions as a tanh cell and the first gate of an LSTM show them: with a forget gate at 1, an input gate of
// sigmoid(v) and a new value of 1, the cell state becomes sigmoid(v).
inline void check_activations(Contest<CellFn>& contest, bool quick) {
    const int64_t blocks = quick ? 200 : 5000, units = blocks * kCellBlock;
    const size_t size = static_cast<size_t>(units);
    std::vector<float> v(size), zero(size * 4, 0.0f), x(size * 4, 0.0f), h(size), c(size, 0.0f);
    for (int64_t i = 0; i < units; ++i) {
        const double t = static_cast<double>(i) / static_cast<double>(units - 1);
        v[static_cast<size_t>(i)] = static_cast<float>(i % 2 == 0 ? 24 * t - 12 : std::exp(40 * t - 38));
    }
    float low, high;
    CellArgs a;
    a.cell = Cell::tanh;
    a.rows = 1;
    a.x.v = v.data();
    a.h.v = zero.data();
    a.before = zero.data();
    a.after = h.data();
    a.c = c.data();
    a.stride = units;
    a.low = &low;
    a.high = &high;
    contest.reference(a, 0, blocks);
    double tanh_error = 0, sigmoid_error = 0;
    for (size_t i = 0; i < size; ++i)
        tanh_error = std::max(tanh_error, ulps(h[i], std::tanh(static_cast<double>(v[i]))));
    contest.contract.expect(tanh_error < 3.0, [&] { return "tanh is off by " + std::to_string(tanh_error) + " ulp"; });
    a.cell = Cell::lstm;
    a.x.v = x.data();
    for (size_t i = 0; i < size; ++i) {
        const size_t at = i / kCellBlock * 4 * kCellBlock + i % kCellBlock;
        x[at] = v[i];
        x[at + 2 * kCellBlock] = 20.0f;
    }
    contest.reference(a, 0, blocks);
    for (size_t i = 0; i < size; ++i)
        sigmoid_error = std::max(sigmoid_error, ulps(c[i], 1 / (1 + std::exp(-static_cast<double>(v[i])))));
    contest.contract.expect(sigmoid_error < 3.0,
                            [&] { return "sigmoid is off by " + std::to_string(sigmoid_error) + " ulp"; });
}

inline void check_cell(Report& report, bool quick) {
    Contest<CellFn> contest(report, "cell", &Kernels::cell);
    Random random(31);
    check_activations(contest, quick);
    for (Cell cell : {Cell::lstm, Cell::gru, Cell::tanh, Cell::relu})
        for (int64_t rows : {1, 2, 5})
            for (int64_t blocks : {1, 2, 5})
                for (int kind = 0; kind < 4; ++kind) {
                    const bool extremes = kind % 2 != 0, by_rows = kind >= 2;
                    const int64_t width = blocks * kCellBlock, gates = width * cell_gates(cell);
                    // Ordinary values, and all floats there are.
                    const auto values = [&](int64_t n) {
                        std::vector<float> r = numbers(random, n, 0.125f);
                        if (!extremes)
                            for (float& x : r)
                                x = static_cast<float>(static_cast<int>(random.below(8000)) - 4000) / 500.0f;
                        return r;
                    };
                    const std::vector<float> x = values(rows * gates), h = values(rows * gates);
                    const std::vector<float> before = values(rows * width), state = values(rows * width);
                    const int64_t begin = blocks / 2, end = blocks;
                    Guarded<float> want(rows * width), got(rows * width);
                    Guarded<float> want_low(rows), want_high(rows), got_low(rows), got_high(rows);
                    std::vector<float> want_c = state;
                    const std::vector<float> rescale = values(4 * (rows + gates));
                    const auto gates_of = [&](const std::vector<float>& v, int64_t at) {
                        CellGates g{v.data(), gates};
                        if (!by_rows) return g;
                        g.scale = rescale.data() + at * 2 * (rows + gates);
                        g.zero_point = g.scale + rows;
                        g.sums = g.zero_point + rows;
                        g.bias = g.sums + gates;
                        return g;
                    };
                    CellArgs a{cell,        rows,          gates_of(x, 0), gates_of(h, 1),  before.data(),
                               want.data(), want_c.data(), width,          want_low.data(), want_high.data()};
                    contest.reference(a, begin, end);
                    contest.contract.expect(want.untouched_outside({0, rows * width}), "wrote outside its rows");
                    for (auto& candidate : contest.candidates) {
                        std::vector<float> got_c = state;
                        got.reset();
                        a.after = got.data();
                        a.c = got_c.data();
                        a.low = got_low.data();
                        a.high = got_high.data();
                        candidate.kernel(a, begin, end);
                        const auto expect = [&](const char* what, const Guarded<float>& g, const Guarded<float>& w) {
                            const int64_t at = g.difference(w);
                            candidate.check.expect(at == g.kNone, [&] { return place(what, at, w, g); });
                        };
                        expect("h", got, want);
                        for (int64_t r = 0; r < rows; ++r)  // the sign of a zero is free
                            candidate.check.expect((got_low.data()[r] == want_low.data()[r] ||
                                                    same(got_low.data()[r], want_low.data()[r])) &&
                                                       (got_high.data()[r] == want_high.data()[r] ||
                                                        same(got_high.data()[r], want_high.data()[r])),
                                                   "the range of a row");
                        candidate.check.expect(std::equal(got_c.begin(), got_c.end(), want_c.begin(),
                                                          [](float p, float q) { return same(p, q); }),
                                               "c differs");
                    }
                }
    contest.close(report);
}

inline void check_half_gemm(Report& report, bool quick) {
    Contest<HalfGemmFn> contest(report, "half_gemm", &Kernels::half_gemm);
    Random random(32);
    // Every float16 once, by an x of 1.
    {
        const int64_t panels = 65536 / kHalfPanel;
        std::vector<uint16_t> w(65536);
        for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<uint16_t>(i);
        const std::vector<float> bias(w.size(), 0.0f);
        const float one = 1;
        Guarded<float> want(65536), got(65536);
        HalfGemmArgs a{&one, 1, 1, 1, w.data(), bias.data(), want.data(), 65536};
        contest.reference(a, 0, panels);
        for (auto& candidate : contest.candidates) {
            a.y = got.data();
            candidate.kernel(a, 0, panels);
            const int64_t at = got.difference(want);
            candidate.check.expect(at == got.kNone, [&] { return place("float16", at, want, got); });
        }
    }
    for (int64_t rows : {1, 2, 3, 4, 5, 6, 7, 13})
        for (int64_t depth : {0, 1, 7, 64})
            for (int64_t panels : {1, 2, 3, 9}) {
                if (quick && panels == 9 && depth == 64) continue;
                const int64_t stride = depth + 3, width = panels * kHalfPanel;
                std::vector<uint16_t> w(static_cast<size_t>(width * depth));
                for (uint16_t& x : w) x = static_cast<uint16_t>(random.below(65536));
                const std::vector<float> x = numbers(random, rows * stride, 0.125f),
                                         bias = numbers(random, width, 1.0f);
                Guarded<float> want(rows * width), got(rows * width);
                const int64_t begin = panels / 3;
                HalfGemmArgs a{x.data(), rows, depth, stride, w.data(), bias.data(), want.data(), width};
                contest.reference(a, begin, panels);
                contest.contract.expect(want.untouched_outside({0, rows * width}), "wrote outside its rows");
                for (auto& candidate : contest.candidates) {
                    got.reset();
                    a.y = got.data();
                    candidate.kernel(a, begin, panels);
                    const int64_t at = got.difference(want);
                    candidate.check.expect(at == got.kNone, [&] { return place("y", at, want, got); });
                }
            }
    contest.close(report);
}

// Products of activations up to kNarrowMost against sums in int64.
inline void check_narrow_gemm(Report& report, bool quick) {
    const int before = num_threads();
    std::vector<GemmCandidate> candidates;
    for (const Listed& k : listed()) {
        if (k.operation != "narrow_gemm") continue;
        const std::string missing = why_not(k.isa);
        if (missing.empty())
            candidates.push_back({k.kernels.narrow_gemm(), Check("narrow_gemm", isa_name(k.isa))});
        else
            report.skip("narrow_gemm", isa_name(k.isa), missing);
    }
    Random random(34);
    const auto one = [&](int64_t rows, int64_t n, int64_t k, Values kind, Values w_kind) {
        MatmulCase c = matmul_case(random, rows * k, n * k, rows * n, n, k,
                                   static_cast<Finish>(random.below(kFinishes)), kind, w_kind);
        if (c.x_type == IntType::s8) {
            c.x_type = IntType::u8;
            c.x_zero_point += 128;
        }
        for (uint8_t& x : c.x) x = std::min<uint8_t>(x, kNarrowMost);
        const std::vector<uint8_t> want = plain_linear(c, rows, n, k);
        set_num_threads(static_cast<int>(1 + random.below(3)));
        for (GemmCandidate& candidate : candidates)
            expect_bytes(candidate.check, c, want,
                         "linear " + std::to_string(rows) + "x" + std::to_string(n) + "x" + std::to_string(k),
                         [&](const MatmulOutput& out) {
                             LinearPlan(c.weights(), n, k, candidate.kernel).run(c.input(), rows, out);
                         });
    };
    constexpr Values kAll[] = {Values::any, Values::largest, Values::smallest, Values::alternating};
    const int64_t step = quick ? 5 : 1;
    for (int64_t rows = 1; rows <= 20; rows += step)
        for (int64_t n : {1, 16, 33, 100}) one(rows, n, random.between(1, 70), Values::any, Values::any);
    for (int64_t k = 1; k <= 70; k += step) one(random.between(1, 8), 40, k, Values::any, Values::any);
    for (Values kind : kAll)
        for (Values w_kind : kAll)
            for (int64_t rows : {1, 2, 13}) one(rows, 70, 260, kind, w_kind);
    set_num_threads(before);
    for (const GemmCandidate& c : candidates) report.add(c.check);
}

// Every part of every step once, and not before the step before it is done: each part sums what all made.
inline void check_step_threads(Report& report, bool quick) {
    const int before = num_threads();
    Check check("operators", "steps that threads share");
    for (int threads : {1, 2, 3, 5})
        for (int64_t parts = 1; parts <= (quick ? 3 : 7); ++parts) {
            constexpr int64_t kSteps = 50;
            const auto next = [&](const std::vector<uint32_t>& all, int64_t part) {
                return std::accumulate(all.begin(), all.end(), static_cast<uint32_t>(part + 1));
            };
            const std::vector<uint32_t> first(static_cast<size_t>(parts), 1);
            std::vector<uint32_t> want = first;
            for (int64_t step = 0; step < kSteps; ++step) {
                const std::vector<uint32_t> last = want;
                for (int64_t part = 0; part < parts; ++part) want[static_cast<size_t>(part)] = next(last, part);
            }
            set_num_threads(threads);
            StepThreads shared(parts);
            std::vector<uint32_t> made[2] = {first, first};
            std::vector<int> taken(static_cast<size_t>(parts * kSteps), 0);
            const auto take = [&](int64_t step, int64_t part) {
                made[step & 1][static_cast<size_t>(part)] = next(made[(step + 1) & 1], part);
                ++taken[static_cast<size_t>(step * parts + part)];
            };
            shared.run(0, kSteps / 2, take);
            shared.run(kSteps / 2, kSteps, take);
            const bool once = std::all_of(taken.begin(), taken.end(), [](int n) { return n == 1; });
            check.expect(once && made[(kSteps + 1) & 1] == want, [&] {
                return std::to_string(parts) + " parts on " + std::to_string(threads) + " threads: wrong or not once";
            });
            // One that has no memory stops the others, which do not wait for it, and the next run is a new one.
            bool stopped = false;
            try {
                shared.run(0, kSteps, [&](int64_t step, int64_t part) {
                    if (step == kSteps / 2 && part == parts - 1) throw std::bad_alloc();
                });
            } catch (const std::bad_alloc&) {
                stopped = true;
            }
            std::atomic<int64_t> count{0};
            shared.run(0, kSteps, [&](int64_t, int64_t) { count.fetch_add(1, std::memory_order_relaxed); });
            check.expect(stopped && count.load() == parts * kSteps, [&] {
                return std::to_string(parts) + " parts on " + std::to_string(threads) +
                       " threads: did not stop or begin";
            });
        }
    set_num_threads(before);
    report.add(check);
}

// A packed sequence: the same bytes on every level and with any number of threads.
inline void check_recurrent(Report& report, bool quick) {
    check_step_threads(report, quick);
    const int before = num_threads();
    for (Cell cell : {Cell::lstm, Cell::gru, Cell::tanh, Cell::relu})
        for (int kind = 0; kind < 4; ++kind) {
            const bool half = kind == 3, narrow = kind == 1, per_row = kind == 2;
            const auto run = [cell, half, narrow, per_row] {
                Random random(33);
                const int64_t hidden = 83, inputs = 19, gates = cell_gates(cell) * hidden;
                // Where there are enough products, and rows need not wait for each other, threads take rows: shorter
                // ones and longer ones.
                std::vector<int64_t> batch_sizes = {7, 7, 6, 2, 2, 1};
                if (per_row || half) batch_sizes.insert(batch_sizes.begin(), 64, 13);
                const int64_t batch = batch_sizes[0], steps = static_cast<int64_t>(batch_sizes.size());
                const int64_t rows = std::accumulate(batch_sizes.begin(), batch_sizes.end(), int64_t{0});
                const auto values = [&](int64_t n) {
                    std::vector<float> r(static_cast<size_t>(n));
                    for (float& x : r) x = static_cast<float>(static_cast<int>(random.below(2000)) - 1000) / 1000.0f;
                    return r;
                };
                const int32_t zero_point = 3;
                const float scale = 0.002f;
                std::vector<RecurrentLayer> layers;
                for (int d = 0; d < 2; ++d) {
                    const std::vector<float> bias = values(gates);
                    const auto weight = [&](int64_t columns, std::vector<uint16_t>& memory) {
                        memory.resize(static_cast<size_t>(gates * columns));
                        for (uint16_t& w : memory)  // float16 in +-1/4, or two random bytes
                            w = static_cast<uint16_t>(half ? random.below(0x3400) | random.below(2) << 15
                                                           : random.below(65536));
                        RecurrentWeight w;
                        w.data = memory.data();
                        w.numbers = half ? RecurrentNumbers::halves : RecurrentNumbers::bytes;
                        w.zero_point = &zero_point;
                        w.zero_points = 1;
                        w.scale = &scale;
                        w.scales = 1;
                        w.bias = bias.data();
                        return w;
                    };
                    std::vector<uint16_t> first, second;
                    const RecurrentWeight input = weight(inputs, first), recurrent = weight(hidden, second);
                    layers.emplace_back(cell, hidden, inputs, RecurrentRanges{narrow, per_row}, input, recurrent);
                }
                const std::vector<float> x = values(rows * inputs), h = values(2 * batch * hidden),
                                         c = values(2 * batch * hidden);
                std::vector<float> all;
                // One direction, whose parts the threads share, and both, which they take one each.
                for (size_t directions : {1, 2}) {
                    std::vector<float> y(static_cast<size_t>(rows * hidden) * directions), last_h(h.size()),
                        last_c(c.size());
                    std::vector<const RecurrentLayer*> some = {&layers[0], &layers[1]};
                    some.resize(directions);
                    run_recurrent(some, {x.data(), batch_sizes.data(), steps, y.data(), h.data(), c.data(),
                                         last_h.data(), last_c.data()});
                    for (const auto& part : {y, last_h, last_c}) all.insert(all.end(), part.begin(), part.end());
                }
                return bytes_of_floats(all);
            };
            const char* names[] = {"lstm", "gru", "rnn_tanh", "rnn_relu"};
            check_operator(report, quick,
                           std::string(names[static_cast<int>(cell)]) + (half      ? " float16"
                                                                         : narrow  ? " int8, 7 bits"
                                                                         : per_row ? " int8, ranges of rows"
                                                                                   : " int8"),
                           run);
        }
    set_num_threads(before);
}

}  // namespace zeropoint::check
