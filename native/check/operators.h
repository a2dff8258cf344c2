// The operators: the same bytes for any number of threads and any level, and refusals that say what is wrong.
#pragma once

#include "check/threads.h"
#include "operators/affine.h"
#include "operators/lookup.h"
#include "operators/packing.h"
#include "operators/ranges.h"

#include <functional>

namespace zeropoint::check {

// Everything one call writes, as bytes.
using Bytes = std::vector<uint8_t>;
using Operator = std::function<Bytes()>;

template <class T>
Bytes bytes_of(const std::vector<T>& v) {
    Bytes r(v.size() * sizeof(T));
    if (!r.empty()) std::memcpy(r.data(), v.data(), r.size());
    return r;
}

// NaN is one value here, as in Guarded::difference.
inline Bytes bytes_of_floats(std::vector<float> v) {
    for (float& x : v)
        if (std::isnan(x)) x = std::numeric_limits<float>::quiet_NaN();
    return bytes_of(v);
}

// The bytes with the plain specification in one thread, then with every level (quick: the best) and 1, 2 and 3 threads.
inline void check_operator(Report& report, bool quick, const std::string& what, const Operator& run) {
    Check c("operators", what);
    const Isa level = active_isa();
    const Isa best = best_isa(cpu_features());
    set_active_isa(Isa::reference);
    set_num_threads(1);
    const Bytes want = run();
    for (Isa isa : kIsas) {
        if (!why_not(isa).empty() || (quick && isa != best)) continue;
        set_active_isa(isa);
        for (int threads : {1, 2, 3}) {
            set_num_threads(threads);
            c.expect(run() == want, [&] {
                return std::string(isa_name(isa)) + " on " + std::to_string(threads) +
                       " threads differs from reference on one";
            });
        }
    }
    set_active_isa(level);
    report.add(c);
}

template <class T>
ParameterView view(const std::vector<T>& v) {
    constexpr ScalarType kType = std::is_same_v<T, float>     ? ScalarType::f32
                                 : std::is_same_v<T, double>  ? ScalarType::f64
                                 : std::is_same_v<T, int64_t> ? ScalarType::s64
                                                              : ScalarType::s32;
    static_assert(kType != ScalarType::s32 || std::is_same_v<T, int32_t>);
    return {v.data(), kType, static_cast<int64_t>(v.size())};
}

struct OperatorData {
    std::vector<float> x;
    std::vector<float> scale;
    std::vector<double> wide_scale;
    std::vector<int32_t> zero_point;
    std::vector<float> float_zero_point;
};

inline OperatorData operator_data(int64_t n, int64_t count) {
    Random random(9);
    OperatorData d;
    d.x = numbers(random, n, 0.25f);
    for (int64_t i = 0; i < count; ++i) {
        d.wide_scale.push_back(i % 2 == 0 ? 0.25 : random.unit() + 0.01);
        d.scale.push_back(static_cast<float>(d.wide_scale.back()));
        d.zero_point.push_back(static_cast<int32_t>(random.between(-20, 20)));
        d.float_zero_point.push_back(static_cast<float>(random.unit()));
    }
    return d;
}

inline void check_affine_operators(Report& report, bool quick) {
    // Large enough for several tasks of the operators' 32768 elements.
    const int64_t rows = quick ? 18 : 90;
    struct Layout {
        const char* name;
        Grid grid;
    };
    const Layout layouts[] = {
        {"per tensor", {1, 1, rows * 2016, 0, nullptr}},     {"channels last", {rows * 32, 63, 1, 0, nullptr}},
        {"short segments", {rows * 2, 112, 9, 0, nullptr}},  // flattened() repeats the parameters
        {"per channel", {rows / 6, 63, 6 * 32, 0, nullptr}}, {"per token", {rows, 1, 2016, 1, nullptr}},
        {"per group", {rows, 63, 32, 63, nullptr}},
    };
    for (const Layout& layout : layouts) {
        const Grid& grid = layout.grid;
        const size_t n = static_cast<size_t>(grid.numel());
        const OperatorData d = operator_data(grid.numel(), grid.base(grid.rows - 1) + grid.segments);
        const std::string suffix = std::string(" ") + layout.name;
        check_operator(report, quick, "quantize" + suffix, [&] {
            std::vector<int8_t> y(n), wide(n);
            quantize(d.x.data(), y.data(), IntType::s8, grid, view(d.scale), view(d.zero_point), RoundingVariant::split,
                     -128, 127);
            quantize(d.x.data(), wide.data(), IntType::s8, grid, view(d.wide_scale), view(d.zero_point),
                     RoundingVariant::joined, -128, 127);
            y.insert(y.end(), wide.begin(), wide.end());
            return bytes_of(y);
        });
        check_operator(report, quick, "dequantize" + suffix, [&] {
            std::vector<int32_t> q(n);
            for (size_t i = 0; i < n; ++i) q[i] = static_cast<int32_t>(i * 2654435761u);
            std::vector<float> y(n), wide(n);
            dequantize(q.data(), IntType::s32, y.data(), grid, view(d.scale), view(d.zero_point), true, false);
            dequantize(q.data(), IntType::s32, wide.data(), grid, view(d.wide_scale), {}, false, true);
            y.insert(y.end(), wide.begin(), wide.end());
            return bytes_of_floats(y);
        });
        check_operator(report, quick, "fake_quantize" + suffix, [&] {
            std::vector<float> y(n), joined(n);
            std::vector<uint8_t> mask(n);
            fake_quantize(d.x.data(), y.data(), mask.data(), grid, view(d.scale), view(d.zero_point), Beyond::nan_low,
                          WayBack::exact, 0, 255);
            fake_quantize(d.x.data(), joined.data(), nullptr, grid, view(d.scale), view(d.float_zero_point),
                          Beyond::int64_low, WayBack::exact_product, 0, 255);
            y.insert(y.end(), joined.begin(), joined.end());
            Bytes r = bytes_of_floats(y);
            r.insert(r.end(), mask.begin(), mask.end());
            return r;
        });
        check_operator(report, quick, "minmax" + suffix, [&] {
            const int64_t parts = static_cast<int64_t>(d.scale.size());
            std::vector<float> result(d.scale.size() * 2);
            minmax(d.x.data(), grid, parts, result.data(), result.data() + parts);
            return bytes_of_floats(result);
        });
    }
}

inline void check_other_operators(Report& report, bool quick) {
    const int64_t rows = quick ? 220 : 1000, columns = 333;
    const OperatorData d = operator_data(rows * columns, 1);
    const size_t n = d.x.size();
    check_operator(report, quick, "quantize_tensor", [&] {
        std::vector<uint8_t> y(n), fused(n);
        quantize_tensor(d.x.data(), y.data(), IntType::u8, rows * columns, 0.1, 3, RoundingVariant::split, 0, 255);
        quantize_tensor(d.x.data(), fused.data(), IntType::u8, rows * columns, 0.1, 3, RoundingVariant::fused, 0, 255);
        y.insert(y.end(), fused.begin(), fused.end());
        return y;
    });
    check_operator(report, quick, "mask_gradient", [&] {
        std::vector<uint8_t> mask(n);
        for (size_t i = 0; i < n; ++i) mask[i] = i % 3 == 0;
        std::vector<float> dx(n);
        mask_gradient(d.x.data(), mask.data(), dx.data(), rows * columns);
        return bytes_of_floats(dx);
    });
    check_operator(report, quick, "lookup", [&] {
        std::vector<uint8_t> table(256), x(n), y(n);
        for (size_t i = 0; i < 256; ++i) table[i] = static_cast<uint8_t>(i * 167 + 13);
        for (size_t i = 0; i < n; ++i) x[i] = static_cast<uint8_t>(i * 2654435761u >> 11);
        lookup(x.data(), table.data(), y.data(), rows * columns);
        lookup(x.data(), table.data(), x.data(), rows * columns);  // in place
        y.insert(y.end(), x.begin(), x.end());
        return y;
    });
    check_operator(report, quick, "lookup_rows", [&] {
        constexpr size_t kTables = 3;
        std::vector<uint8_t> tables(256 * kTables), x(n), y(n);
        for (size_t i = 0; i < tables.size(); ++i) tables[i] = static_cast<uint8_t>(i * 167 + i / 256);
        for (size_t i = 0; i < n; ++i) x[i] = static_cast<uint8_t>(i * 2654435761u >> 11);
        lookup_rows(x.data(), tables.data(), kTables, y.data(), rows, columns);
        return y;
    });
    for (int bits : {2, 4})
        check_operator(report, quick, "pack and unpack " + std::to_string(bits) + " bits", [&] {
            const int64_t packed_columns = (columns * bits + 7) / 8;
            std::vector<uint8_t> values(n), packed(static_cast<size_t>(rows * packed_columns)), back(n);
            for (size_t i = 0; i < n; ++i) values[i] = static_cast<uint8_t>((i * 2654435761u >> 7) % (1u << bits));
            pack_rows(values.data(), packed.data(), rows, columns, bits);
            unpack_rows(packed.data(), back.data(), rows, columns, bits);
            if (back != values) return Bytes{static_cast<uint8_t>(num_threads())};  // differs from every other answer
            return packed;
        });
    std::vector<float> ordinary(quick ? 100 : 1000);
    Random random(10);
    for (float& x : ordinary) x = static_cast<float>(random.unit() * random.unit() * 3 - 1);
    check_operator(report, quick, "least_loss_range", [&] {
        const Range four = least_loss_range(ordinary.data(), static_cast<int64_t>(ordinary.size()), 200, 0.16f, 4);
        const Range two = least_loss_range(ordinary.data(), static_cast<int64_t>(ordinary.size()), 200, 0.16f, 2);
        return bytes_of(std::vector<float>{four.low, four.high, two.low, two.high});
    });
}

// flattened() turns short segments into repeated parameters: the reference kernel on the grid as it was must agree.
inline void check_flattened(Report& report) {
    Check c("operators", "short segments, flattened");
    set_num_threads(1);
    for (int64_t rows : {1, 3, 4, 5, 9})
        for (int64_t length : {1, 2, 3, 9, 31, 32, 33}) {
            const Grid grid{rows, 7, length, 0, nullptr};
            const OperatorData d = operator_data(grid.numel(), grid.segments);
            const std::vector<float> inv = inverted<float>(view(d.scale)), zero = converted<float>(view(d.zero_point));
            std::vector<uint8_t> want(d.x.size()), got(d.x.size());
            QuantizeArgs args;
            args.x = d.x.data();
            args.y = want.data();
            args.grid = grid;
            args.inv = inv.data();
            args.zero_point = zero.data();
            args.qmax = 255;
            quantize_reference(args, 0, grid.numel());
            quantize(d.x.data(), got.data(), IntType::u8, grid, view(d.scale), view(d.zero_point),
                     RoundingVariant::split, 0, 255);
            c.expect(got == want,
                     [&] { return std::to_string(rows) + " rows of 7 segments of " + std::to_string(length); });
        }
    report.add(c);
}

inline void check_refusals(Report& report) {
    Check c("operators", "bad parameters");
    const Grid grid{2, 4, 3, 0, nullptr};
    std::vector<float> x(24, 1.0f), y(24);
    std::vector<int8_t> q(24, 1);
    std::vector<uint8_t> mask(24);
    const std::vector<int32_t> zero_point(4, 0);
    const auto refuse = [&](const std::vector<float>& scale, const std::vector<int32_t>& zero, const std::string& value,
                            const std::string& place) {
        const auto wrong = [&](const char* operation, const std::string& text) {
            c.expect(contains(text, operation) && contains(text, value) && contains(text, place), [&] {
                return std::string(operation) + ": expected '" + value + "' and '" + place + "' in '" + text + "'";
            });
        };
        wrong("quantize", refusal([&] {
                  quantize(x.data(), q.data(), IntType::s8, grid, view(scale), view(zero), RoundingVariant::split, -128,
                           127);
              }));
        wrong("fake_quantize", refusal([&] {
                  fake_quantize(x.data(), y.data(), mask.data(), grid, view(scale), view(zero), Beyond::nan_low,
                                WayBack::single, 0, 255);
              }));
    };
    refuse({1, 1, 0, 1}, zero_point, "0.000000", "index 2");
    refuse({1, -kInf, 1, 1}, zero_point, "-inf", "index 1");
    refuse({1, 1, 1, std::numeric_limits<float>::quiet_NaN()}, zero_point, "nan", "index 3");
    refuse({1, 1, 1}, zero_point, "scale has 3 values", "4 are needed");
    refuse({1, 1, 1, 1}, {0, 0}, "zero_point has 2 values", "4 are needed");
    for (double scale : {0.0, std::numeric_limits<double>::infinity(), std::nan("")})
        c.expect(contains(refusal([&] {
                              quantize_tensor(x.data(), q.data(), IntType::s8, 24, scale, 0, RoundingVariant::split,
                                              -128, 127);
                          }),
                          "scale"),
                 "quantize_tensor took a scale that has no inverse");
    const std::string text = refusal(
        [&] { dequantize(q.data(), IntType::s8, y.data(), grid, view(std::vector<float>{1}), {}, false, false); });
    c.expect(contains(text, "dequantize") && contains(text, "scale has 1 values"), "dequantize took too few scales");
    const std::vector<int64_t> row_base{0, 3};
    const Grid looked{2, 4, 3, 0, row_base.data()};
    c.expect(contains(refusal([&] {
                          dequantize(q.data(), IntType::s8, y.data(), looked, view(std::vector<float>(6, 1)), {}, false,
                                     false);
                      }),
                      "7 are needed"),
             "dequantize took too few scales for row_base");
    report.add(c);
}

inline void check_operators(Report& report, bool quick) {
    const int before = num_threads();
    check_affine_operators(report, quick);
    check_other_operators(report, quick);
    check_flattened(report);
    check_refusals(report);
    set_num_threads(before);
}

}  // namespace zeropoint::check
