// Every kernel in kernels/all_kernels.inc against the reference of its operation, byte for byte.
#pragma once

#include "check/inputs.h"
#include "check/report.h"
#include "cpu/features.h"
#include "cpu/architectures.h"
#include "kernels/registry.h"

#include <type_traits>

namespace zeropoint {

#define KERNEL(operation, isa) std::remove_pointer_t<decltype(Kernels::operation)> operation##_##isa;
#include "kernels/all_kernels.inc"
#undef KERNEL

namespace check {

// One line of the lists; `kernels` holds nothing but that kernel.
struct Listed {
    std::string operation;
    Isa isa;
    Kernels kernels;
};

inline const std::vector<Listed>& listed() {
    static const std::vector<Listed> list = [] {
        std::vector<Listed> r;
#define KERNEL(name, level)                                                                                            \
    r.push_back({#name, Isa::level, {}});                                                                              \
    r.back().kernels.name = name##_##level;
#include "kernels/all_kernels.inc"
#undef KERNEL
        return r;
    }();
    return list;
}

// Why this machine cannot run a level; empty if it can.
inline std::string why_not(Isa isa) { return cpu_features().why_not(needs_of(isa)); }

// The reference kernel of an operation, and those of its list that this machine can run.
template <class Fn>
struct Contest {
    struct Candidate {
        Fn kernel;
        Check check;
    };
    Fn reference = nullptr;
    Check contract;  // of the reference itself: what it leaves alone
    std::vector<Candidate> candidates;

    Contest(Report& report, const std::string& operation, Fn Kernels::* field) : contract(operation, "reference") {
        for (const Listed& k : listed()) {
            if (k.operation != operation) continue;
            const std::string missing = why_not(k.isa);
            if (k.isa == Isa::reference)
                reference = k.kernels.*field;
            else if (missing.empty())
                candidates.push_back({k.kernels.*field, Check(operation, isa_name(k.isa))});
            else
                report.skip(operation, isa_name(k.isa), missing);
        }
    }
    void close(Report& report) const {
        report.add(contract);
        for (const Candidate& c : candidates) report.add(c.check);
    }
};

template <class T>
std::string mismatch(const std::string& what, const GridCase& c, Span span, const Guarded<T>& want,
                     const Guarded<T>& got) {
    const int64_t at = got.difference(want);
    return what + ", " + c.describe() + ", elements " + span.describe() + ": at " + std::to_string(at) +
           " the reference gives " + want.show(at) + ", this kernel " + got.show(at);
}

// Runs the reference and every candidate over each of the parts, `width` elements for each index of their spans, and
// compares what they write. run(kernel, y, part) calls one of them.
template <class T, class Fn, class Run>
void compare_parts(Contest<Fn>& contest, const std::string& what, const GridCase& c, const std::vector<Span>& parts,
                   int64_t size, int64_t width, const Run& run) {
    Guarded<T> want(size), got(size);
    for (Span part : parts) {
        want.reset();
        run(contest.reference, want.data(), part);
        contest.contract.expect(want.untouched_outside({part.begin * width, part.end * width}),
                                "wrote outside its range");
        for (auto& candidate : contest.candidates) {
            got.reset();
            run(candidate.kernel, got.data(), part);
            candidate.check.expect(got.difference(want) == got.kNone,
                                   [&] { return mismatch(what, c, part, want, got); });
        }
    }
}

inline const char* name(IntType type) {
    constexpr const char* kNames[] = {"u8", "s8", "s16", "s32"};
    return kNames[static_cast<int>(type)];
}

// Calls body with a value of the C++ type behind an IntType.
template <class Body>
void with_type(IntType type, const Body& body) {
    switch (type) {
        case IntType::u8: return body(uint8_t{});
        case IntType::s8: return body(int8_t{});
        case IntType::s16: return body(int16_t{});
        case IntType::s32: return body(int32_t{});
    }
}

constexpr IntType kIntTypes[] = {IntType::u8, IntType::s8, IntType::s16, IntType::s32};

struct Limits {
    double low, high;
};
inline Limits full_range(IntType type) {
    switch (type) {
        case IntType::u8: return {0, 255};
        case IntType::s8: return {-128, 127};
        case IntType::s16: return {-32768, 32767};
        case IntType::s32: return {-2147483648.0, 2147483647.0};
    }
    return {0, 0};
}

// Visits every grid with some of the variants (all of them in turn), and one grid with every range of its elements.
// visit(grid case, variant, spans)
template <class Variant, class Visit>
void each_case(Random& random, bool quick, const std::vector<Variant>& variants, const Visit& visit) {
    const size_t at_once = quick ? 3 : variants.size();
    size_t next = 0;
    for (const GridCase& c : grid_cases(random, quick))
        for (size_t i = 0; i < at_once; ++i, ++next)
            visit(c, variants[next % variants.size()], spans(random, c.shape.numel()));
    // A part may begin and end anywhere: more than two blocks of the widest kernels, 64 elements.
    const int64_t n = 140;
    const GridCase grids[] = {grid_case(1, 1, n, 0), grid_case(2, n / 2, 1, 0), grid_case(2, n / 14, 7, n / 14)};
    for (const GridCase& c : grids)
        for (int i = 0; i < (quick ? 1 : 3); ++i, next += 5)
            visit(c, variants[next % variants.size()], all_spans(c.shape.numel(), quick ? 11 : 1));
}

struct QuantizeVariant {
    IntType dst;
    RoundingVariant variant;
    bool wide;
    Limits limits;
    std::string describe() const {
        constexpr const char* kNames[] = {"split", "joined", "fused", "saturating", "wrapping"};
        return std::string(kNames[static_cast<int>(variant)]) + (wide ? " float64 to " : " float32 to ") + name(dst) +
               " in " + std::to_string(limits.low) + ".." + std::to_string(limits.high);
    }
};

inline std::vector<QuantizeVariant> quantize_variants() {
    std::vector<QuantizeVariant> r;
    for (IntType dst : kIntTypes)
        for (const bool full : {true, false})
            for (RoundingVariant s : {RoundingVariant::split, RoundingVariant::joined, RoundingVariant::fused,
                                      RoundingVariant::saturating, RoundingVariant::wrapping}) {
                if (dst == IntType::s32 && s == RoundingVariant::saturating && !full)
                    continue;  // qint32 is always the full range
                const Limits limits = full ? full_range(dst) : dst == IntType::u8 ? Limits{1, 14} : Limits{-7, 100};
                r.push_back({dst, s, false, limits});
                if (s == RoundingVariant::split || s == RoundingVariant::joined) r.push_back({dst, s, true, limits});
            }
    return r;
}

inline void check_quantize(Report& report, bool quick) {
    Contest<QuantizeFn> contest(report, "quantize", &Kernels::quantize);
    Random random(1);
    each_case(random, quick, quantize_variants(),
              [&](const GridCase& c, const QuantizeVariant& v, const std::vector<Span>& parts) {
                  const Parameters p = parameters(random, c.parameter_count);
                  const std::vector<float> x = numbers(random, c.shape.numel(), p.scale.empty() ? 1.0f : p.scale[0]);
                  with_type(v.dst, [&](auto zero) {
                      using T = decltype(zero);
                      QuantizeArgs args;
                      args.x = x.data();
                      args.dst = v.dst;
                      args.grid = c.grid();
                      args.inv = v.wide ? static_cast<const void*>(p.wide_inv.data()) : p.inv.data();
                      args.zero_point =
                          v.wide ? static_cast<const void*>(p.wide_zero_point.data()) : p.zero_point.data();
                      args.wide = v.wide;
                      args.variant = v.variant;
                      args.qmin = v.limits.low;
                      args.qmax = v.limits.high;
                      compare_parts<T>(contest, v.describe(), c, parts, c.shape.numel(), 1,
                                       [&](auto kernel, T* y, Span part) {
                                           args.y = y;
                                           kernel(args, part.begin, part.end);
                                       });
                  });
              });
    contest.close(report);
}

struct DequantizeVariant {
    IntType src;
    bool exact, wide;
    std::string describe() const {
        return std::string("from ") + name(src) + (exact ? ", exact difference" : "") +
               (wide ? ", float64 product" : "");
    }
};

template <class T>
std::vector<T> integers(Random& random, int64_t n) {
    std::vector<T> r(static_cast<size_t>(n));
    for (T& v : r) switch (random.below(8)) {
            case 0: v = std::numeric_limits<T>::min(); break;
            case 1: v = std::numeric_limits<T>::max(); break;
            default: v = static_cast<T>(random.bits()); break;
        }
    return r;
}

inline void check_dequantize(Report& report, bool quick) {
    Contest<DequantizeFn> contest(report, "dequantize", &Kernels::dequantize);
    std::vector<DequantizeVariant> variants;
    for (IntType src : kIntTypes)
        for (const bool exact : {false, true})
            for (const bool wide : {false, true}) variants.push_back({src, exact, wide});
    Random random(2);
    each_case(
        random, quick, variants, [&](const GridCase& c, const DequantizeVariant& v, const std::vector<Span>& parts) {
            const Parameters p = parameters(random, c.parameter_count);
            with_type(v.src, [&](auto zero) {
                const auto q = integers<decltype(zero)>(random, c.shape.numel());
                DequantizeArgs args;
                args.q = q.data();
                args.src = v.src;
                args.grid = c.grid();
                args.scale = v.wide ? static_cast<const void*>(p.wide_scale.data()) : p.scale.data();
                args.zero_point = v.exact ? static_cast<const void*>(p.wide_zero_point.data()) : p.zero_point.data();
                args.exact = v.exact;
                args.wide = v.wide;
                compare_parts<float>(contest, v.describe(), c, parts, c.shape.numel(), 1,
                                     [&](auto kernel, float* y, Span part) {
                                         args.y = y;
                                         kernel(args, part.begin, part.end);
                                     });
            });
        });
    contest.close(report);
}

struct FakeQuantizeVariant {
    bool joined;
    Beyond beyond;
    WayBack way_back;
    bool masked;
    Limits limits;
    std::string describe() const {
        return std::string(joined ? "joined" : "split") + ", beyond " + std::to_string(static_cast<int>(beyond)) +
               ", way back " + std::to_string(static_cast<int>(way_back)) + (masked ? ", mask" : ", no mask") +
               ", in " + std::to_string(limits.low) + ".." + std::to_string(limits.high);
    }
};

inline void check_fake_quantize(Report& report, bool quick) {
    Contest<FakeQuantizeFn> contest(report, "fake_quantize", &Kernels::fake_quantize);
    std::vector<FakeQuantizeVariant> variants;
    constexpr Limits kLimits[] = {{0, 255}, {-8, 7}, {-2147483648.0, 2147483647.0}};
    for (const bool joined : {false, true})
        for (Beyond beyond : {Beyond::keep_nan, Beyond::nan_low, Beyond::int64_low})
            for (WayBack way_back : {WayBack::single, WayBack::exact, WayBack::exact_product})
                for (const bool masked : {true, false})
                    variants.push_back({joined, beyond, way_back, masked, kLimits[variants.size() / 2 % 3]});
    Random random(3);
    each_case(
        random, quick, variants, [&](const GridCase& c, const FakeQuantizeVariant& v, const std::vector<Span>& parts) {
            const Parameters p = parameters(random, c.parameter_count);
            const std::vector<float> x = numbers(random, c.shape.numel(), p.scale.empty() ? 1.0f : p.scale[0]);
            Guarded<float> want(c.shape.numel()), got(c.shape.numel());
            Guarded<uint8_t> want_mask(c.shape.numel()), got_mask(c.shape.numel());
            FakeQuantizeArgs args;
            args.x = x.data();
            args.grid = c.grid();
            args.inv = p.inv.data();
            args.zero_point = p.zero_point.data();
            const std::vector<double> exact_zero_point(p.zero_point.data(), p.zero_point.data() + p.zero_point.size());
            args.exact_zero_point = exact_zero_point.data();
            args.scale = p.scale.data();
            args.joined = v.joined;
            args.beyond = v.beyond;
            args.way_back = v.way_back;
            args.qmin = v.limits.low;
            args.qmax = v.limits.high;
            args.mask_lo = static_cast<float>(v.limits.low);
            args.mask_hi = std::min(static_cast<float>(v.limits.high), 2147483520.0f);
            for (Span span : parts) {
                want.reset();
                want_mask.reset();
                args.y = want.data();
                args.mask = v.masked ? want_mask.data() : nullptr;
                contest.reference(args, span.begin, span.end);
                contest.contract.expect(want.untouched_outside(span) && want_mask.untouched_outside(span),
                                        "wrote outside its range");
                for (auto& candidate : contest.candidates) {
                    got.reset();
                    got_mask.reset();
                    args.y = got.data();
                    args.mask = v.masked ? got_mask.data() : nullptr;
                    candidate.kernel(args, span.begin, span.end);
                    candidate.check.expect(got.difference(want) == got.kNone,
                                           [&] { return mismatch(v.describe(), c, span, want, got); });
                    candidate.check.expect(got_mask.difference(want_mask) == got_mask.kNone, [&] {
                        return mismatch(v.describe() + ", the mask", c, span, want_mask, got_mask);
                    });
                }
            }
        });
    contest.close(report);
}

inline void check_interleave(Report& report, bool quick) {
    Contest<InterleaveFn> contest(report, "interleave", &Kernels::interleave);
    Random random(12);
    for (int64_t planes : {1, 2, 3, 4, 5, 8, 15, 16, 17, 33, 64})
        for (int64_t places = 0; places <= (quick ? 50 : 130); ++places) {
            const int64_t stride = places + random.below(9);
            const GridCase c = grid_case(places, 1, planes, 1);
            const std::vector<uint8_t> x = integers<uint8_t>(random, planes * stride);
            compare_parts<uint8_t>(contest, "y", c, {{0, places}, {places / 3, places}, {places / 3, places / 2}},
                                   planes * places, planes, [&](auto kernel, uint8_t* y, Span part) {
                                       kernel({x.data(), stride, planes, y}, part.begin, part.end);
                                   });
        }
    contest.close(report);
}

inline void check_lookup(Report& report, bool quick) {
    Contest<LookupFn> contest(report, "lookup", &Kernels::lookup);
    if constexpr (kX86)
        if (why_not(Isa::avx512).empty())
            contest.candidates.push_back({lookup_avx512_without_vbmi, Check("lookup", "avx512 without VBMI")});
    Random random(11);
    each_case(random, quick, std::vector<int>{0}, [&](const GridCase& c, int, const std::vector<Span>& parts) {
        const std::vector<uint8_t> table = integers<uint8_t>(random, 256);
        const std::vector<uint8_t> x = integers<uint8_t>(random, c.shape.numel());
        compare_parts<uint8_t>(contest, "y", c, parts, c.shape.numel(), 1, [&](auto kernel, uint8_t* y, Span part) {
            kernel({x.data(), table.data(), y}, part.begin, part.end);
        });
    });
    contest.close(report);
}

inline void check_mask_gradient(Report& report, bool quick) {
    Contest<MaskGradientFn> contest(report, "mask_gradient", &Kernels::mask_gradient);
    Random random(4);
    each_case(random, quick, std::vector<int>{0}, [&](const GridCase& c, int, const std::vector<Span>& parts) {
        const std::vector<float> dy = numbers(random, c.shape.numel(), 0.125f);
        std::vector<uint8_t> mask(dy.size());
        for (uint8_t& m : mask) m = random.below(2) != 0;
        compare_parts<float>(contest, "dx", c, parts, c.shape.numel(), 1, [&](auto kernel, float* y, Span part) {
            kernel({dy.data(), mask.data(), y}, part.begin, part.end);
        });
    });
    contest.close(report);
}

inline void check_minmax(Report& report, bool quick) {
    Contest<MinMaxFn> contest(report, "minmax", &Kernels::minmax);
    // How many of 1000 elements are NaN, and whether the results start from an earlier call's.
    struct Variant {
        int nan_per_mille;
        bool widened;
    };
    const std::vector<Variant> variants{{0, false}, {3, false}, {100, false}, {0, true}, {3, true}};
    Random random(5);
    each_case(random, quick, variants, [&](const GridCase& c, const Variant& v, const std::vector<Span>& parts) {
        std::vector<float> x = numbers(random, c.shape.numel(), 0.5f);
        for (float& e : x)
            if (random.below(1000) < v.nan_per_mille)
                e = std::numeric_limits<float>::quiet_NaN();
            else if (std::isnan(e))
                e = -0.0f;
        Guarded<float> want_min(c.parameter_count), want_max(c.parameter_count);
        Guarded<float> got_min(c.parameter_count), got_max(c.parameter_count);
        const auto start = [&](Guarded<float>& min, Guarded<float>& max) {
            Random values(6);
            min.reset();
            max.reset();
            for (int64_t i = 0; i < c.parameter_count; ++i) {
                min.data()[i] = v.widened ? number(values, 0.1f) : kInf;
                max.data()[i] = v.widened ? min.data()[i] : -kInf;
            }
        };
        // The sign of a zero is not defined: compare as +0.
        const auto plain = [&](Guarded<float>& g) {
            for (int64_t i = 0; i < c.parameter_count; ++i) g.data()[i] += 0.0f;
        };
        for (Span span : parts) {
            start(want_min, want_max);
            contest.reference({x.data(), c.grid(), want_min.data(), want_max.data()}, span.begin, span.end);
            contest.contract.expect(want_min.untouched_outside({0, c.parameter_count}) &&
                                        want_max.untouched_outside({0, c.parameter_count}),
                                    "wrote outside its range");
            plain(want_min);
            plain(want_max);
            for (auto& candidate : contest.candidates) {
                start(got_min, got_max);
                candidate.kernel({x.data(), c.grid(), got_min.data(), got_max.data()}, span.begin, span.end);
                plain(got_min);
                plain(got_max);
                candidate.check.expect(got_min.difference(want_min) == got_min.kNone,
                                       [&] { return mismatch("min", c, span, want_min, got_min); });
                candidate.check.expect(got_max.difference(want_max) == got_max.kNone,
                                       [&] { return mismatch("max", c, span, want_max, got_max); });
            }
        }
    });
    contest.close(report);
}

inline void check_histogram(Report& report, bool quick) {
    Contest<HistogramFn> contest(report, "histogram", &Kernels::histogram);
    constexpr int64_t kBins[] = {1, 3, 256, 2048};
    struct Interval {
        float low, high, shrink;
    };
    constexpr Interval kRanges[] = {
        {-1, 1, 1},         {0, 0.5f, 1},     {-0.25f, 3, 1}, {0, 0x1p-140f, 1}, {-3e38f, 3e38f, 0x1p-32f},
        {-3e38f, 3e38f, 1}, {1e30f, 1e30f, 1}};
    Random random(11);
    for (int64_t n = 0; n <= (quick ? 40 : 200); ++n) {
        const int64_t bins = random.of(kBins), room = HistogramArgs::kCopies * (bins + 1);
        const Interval range = random.of(kRanges);
        std::vector<float> x = numbers(random, n + 7, 0.5f);
        for (float& v : x)
            if (random.below(3) != 0) v = static_cast<float>(random.unit() * 2 - 1) * range.high;
        const Span span{random.below(5), n + 5};
        struct Result {
            Guarded<uint32_t> counts;
            Guarded<float> ends{2};
            int64_t others[2] = {1, 2};
        };
        const auto run = [&](HistogramFn kernel, Result& r) {
            for (int64_t i = 0; i < room; ++i) r.counts.data()[i] = static_cast<uint32_t>(i % 5);
            r.ends.data()[0] = 0.125f;
            r.ends.data()[1] = 0.25f;
            kernel({x.data(), range.low, range.high, range.shrink, bins, r.counts.data(), r.ends.data(),
                    r.ends.data() + 1, r.others, r.others + 1},
                   span.begin, span.end);
            r.ends.data()[0] += 0.0f;  // the sign of a zero is not defined
            r.ends.data()[1] += 0.0f;
        };
        Result want{Guarded<uint32_t>(room)};
        run(contest.reference, want);
        contest.contract.expect(want.counts.untouched_outside({0, room}), "wrote outside its counters");
        for (auto& candidate : contest.candidates) {
            Result got{Guarded<uint32_t>(room)};
            run(candidate.kernel, got);
            const auto where = [&] {
                return std::to_string(bins) + " bins over [" + std::to_string(range.low) + ", " +
                       std::to_string(range.high) + "], elements " + span.describe();
            };
            candidate.check.expect(got.counts.difference(want.counts) == got.counts.kNone,
                                   [&] { return "counts, " + where(); });
            candidate.check.expect(got.ends.difference(want.ends) == got.ends.kNone,
                                   [&] { return "ends, " + where(); });
            candidate.check.expect(got.others[0] == want.others[0] && got.others[1] == want.others[1],
                                   [&] { return "NaN and infinities, " + where(); });
        }
    }
    contest.close(report);
}

// pack and unpack alike: rows of `columns` values, and of as many bytes as they need.
template <class Fn>
void check_packing(Report& report, bool quick, const char* operation, Fn Kernels::* field, bool packs) {
    Contest<Fn> contest(report, operation, field);
    Random random(7);
    std::vector<int64_t> widths;
    for (int64_t columns = 0; columns <= 200; ++columns) widths.push_back(columns);
    for (int64_t columns : {255, 256, 257, 511, 1000}) widths.push_back(columns);
    if (!quick) widths.push_back(20001);
    for (int bits : {2, 4})
        for (int64_t columns : widths) {
            const int64_t rows = columns < 70 ? 5 : 2;
            const GridCase c = grid_case(rows, 1, columns, 1);
            PackArgs args;
            args.columns = columns;
            args.bits = bits;
            const int64_t from = packs ? columns : args.packed_columns(), to = packs ? args.packed_columns() : columns;
            const std::vector<uint8_t> src = integers<uint8_t>(random, rows * from);
            args.src = src.data();
            compare_parts<uint8_t>(contest, std::to_string(bits) + " bits", c, all_spans(rows), rows * to, to,
                                   [&](auto kernel, uint8_t* y, Span part) {
                                       args.dst = y;
                                       kernel(args, part.begin, part.end);
                                   });
        }
    contest.close(report);
}

inline void check_pack(Report& report, bool quick) { check_packing(report, quick, "pack", &Kernels::pack, true); }
inline void check_unpack(Report& report, bool quick) {
    check_packing(report, quick, "unpack", &Kernels::unpack, false);
}

inline void check_quantization_loss(Report& report, bool quick) {
    Contest<QuantizationLossFn> contest(report, "quantization_loss", &Kernels::quantization_loss);
    Random random(8);
    for (int64_t n = 0; n <= (quick ? 100 : 203); ++n)
        for (int round = 0; round < (quick ? 4 : 12); ++round) {
            const int64_t count = n <= 200 ? n : 1000 * (n - 200) + round;
            // Rounds in turn: numbers as people have them, extremes, and all equal.
            std::vector<float> x = numbers(random, count, 0.01f);
            for (float& e : x)
                if (round % 4 != 1) e = round % 4 == 3 ? 0.3f : static_cast<float>(random.unit() * 4 - 2);
            QuantizationLossArgs args;
            args.x = x.data();
            args.n = count;
            args.qmax = random.of({3.0f, 15.0f, 255.0f});
            for (LossCandidate& candidate : args.candidate) {
                candidate.low = round % 4 == 3 ? 0.3f : static_cast<float>(-1 - random.unit());
                // A range too narrow for float16 has the scale 0.
                candidate.scale = round % 4 == 3 ? 0.0f : static_cast<float>(0.001 + random.unit());
                candidate.inv = 1.0f / candidate.scale;
            }
            QuantizationLossArgs want = args;
            contest.reference(want);
            contest.contract.expect(!(want.loss[0] < 0) && !(want.loss[1] < 0), "a negative loss");
            for (auto& candidate : contest.candidates) {
                QuantizationLossArgs got = args;
                candidate.kernel(got);
                for (int k = 0; k < 2; ++k)
                    candidate.check.expect(same(got.loss[k], want.loss[k]), [&] {
                        return std::to_string(count) + " elements, candidate " + std::to_string(k) + ", round " +
                               std::to_string(round) + ": the reference gives " + std::to_string(want.loss[k]) +
                               ", this kernel " + std::to_string(got.loss[k]);
                    });
            }
        }
    contest.close(report);
}

}  // namespace check
}  // namespace zeropoint
