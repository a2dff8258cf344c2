// Functions, norms, softmax and products of float32: kernels against their references, functions against float64, and
// whole operators on matrices that lie in memory in any way.
#pragma once

#include "check/inputs.h"
#include "check/kernels.h"
#include "check/recurrent.h"
#include "check/report.h"
#include "operators/float_functions.h"
#include "operators/function_curve.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace zeropoint::check {

// Runs a kernel over [0, count) of its work for the reference and every candidate, and compares `size` outputs.
template <class Fn, class Args>
void compare_floats(Contest<Fn>& contest, Args a, int64_t count, int64_t size, const char* what) {
    Guarded<float> want(size), got(size);
    a.y = want.data();
    contest.reference(a, 0, count);
    contest.contract.expect(want.untouched_outside({0, size}), "wrote outside its output");
    for (auto& candidate : contest.candidates) {
        got.reset();
        a.y = got.data();
        candidate.kernel(a, 0, count);
        const int64_t at = got.difference(want);
        candidate.check.expect(at == got.kNone, [&] { return place(what, at, want, got); });
    }
}

inline double exact_function(FloatFunction function, double x) {
    const double cubic = std::sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x);
    switch (function) {
        case FloatFunction::gelu: return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
        case FloatFunction::gelu_tanh: return x / (1 + std::exp(-2 * cubic));
        case FloatFunction::tanh: return std::tanh(x);
        case FloatFunction::sigmoid: return 1 / (1 + std::exp(-x));
        case FloatFunction::silu: return x / (1 + std::exp(-x));
    }
    return x;
}

inline void check_float_function(Report& report, bool quick) {
    Contest<FloatFunctionFn> contest(report, "float_function", &Kernels::float_function);
    Random random(61);
    for (int number = 0; number < 5; ++number) {
        const FloatFunction function = static_cast<FloatFunction>(number);
        for (int64_t n : {1, 7, 8, 15, 16, 17, 33, quick ? 1000 : 100003}) {
            const std::vector<float> x = numbers(random, n, 0.5f);
            compare_floats(contest, FloatFunctionArgs{function, x.data(), nullptr}, n, n, "a function");
        }
        const int64_t steps = quick ? 2000 : 50000;
        double worst = 0;
        for (int64_t i = 0; i < steps; ++i) {
            const float x = static_cast<float>(static_cast<double>(i) * 24 / static_cast<double>(steps) - 12);
            float y = 0;
            contest.reference({function, &x, &y}, 0, 1);
            const double exact = exact_function(function, static_cast<double>(x));
            if (std::fabs(exact) > 1e-30)
                worst = std::max(worst, std::fabs(static_cast<double>(y) - exact) / std::fabs(exact));
        }
        contest.contract.expect(worst < 1e-5, [&] {
            return "function " + std::to_string(number) + " is off by " + std::to_string(worst * 1e6) + " millionths";
        });
    }
    contest.close(report);
}

// Numbers whose results are where rounding changes its mind: the last and the first of neighbouring bytes.
inline std::vector<float> undecided(FloatFunctionFn kernel, FloatFunction function, float inv) {
    std::vector<float> found;
    const auto steps = [&](float x) {
        float y = 0;
        kernel({function, &x, &y}, 0, 1);
        return std::nearbyint(y * inv);
    };
    for (const auto& [first, last] : {std::pair{-9.0f, -0.8f}, std::pair{-0.7f, 9.0f}})
        for (float x = first; x < last; x += 0.03f) {
            float low = x, high = x + 0.03f;
            if (steps(low) == steps(high)) continue;
            for (float middle = 0; (middle = low + (high - low) / 2) > low && middle < high;)
                (steps(middle) == steps(low) ? low : high) = middle;
            for (float side : {-kInf, kInf})
                for (float v : {low, high})
                    for (int k = 0; k < 3; ++k, v = std::nextafter(v, side)) found.push_back(v);
        }
    return found;
}

inline void check_quantized_function(Report& report, bool quick) {
    Contest<QuantizedFunctionFn> contest(report, "quantized_function", &Kernels::quantized_function);
    const FloatFunctionFn function_kernel = select_kernels(Isa::reference).float_function;
    Random random(63);
    for (int number = 0; number < 5; ++number)
        for (const float inv : {0.01f, 1.0f, 20.1f, 51.7f, 128.0f, 5000.0f})
            for (const IntType type : {IntType::u8, IntType::s8}) {
                const FloatFunction function = static_cast<FloatFunction>(number);
                std::vector<float> x = numbers(random, 67, 0.5f);
                for (int64_t i = 0; i < (quick ? 500 : 20000); ++i)
                    x.push_back(static_cast<float>(random.unit() * 16 - 8));
                const std::vector<float> more = undecided(function_kernel, function, inv);
                x.insert(x.end(), more.begin(), more.end());
                QuantizedFunctionArgs a;
                a.function = function;
                a.x = x.data();
                a.type = type;
                a.inv = inv;
                const int32_t least = type == IntType::s8 ? -128 : 0;
                a.zero_point = least + static_cast<int32_t>(random.below(256));
                a.lo = random.below(2) != 0 ? least : least + 3;
                a.hi = random.below(2) != 0 ? least + 255 : least + 250;
                // Some of x are where a curve must not be certain; all of them are within its bounds.
                const auto curve = make_curve(function, inv, a.hi - a.zero_point);
                if (random.below(2) != 0 && curve != nullptr) {
                    a.curve = curve.get();
                    for (float& v : x) v = v >= curve->low ? std::min(v, curve->high) : curve->low;
                }
                for (const int64_t columns : {int64_t{64}, int64_t{37}, int64_t{200}}) {
                    const int64_t rows = static_cast<int64_t>(x.size()) / columns, apart = columns + 5;
                    std::vector<int64_t> y_rows;
                    for (int64_t i = 0; i < rows; ++i) y_rows.push_back((rows - 1 - i) * apart);
                    a.columns = columns;
                    a.y_rows = y_rows.data();
                    Guarded<uint8_t> want(rows * apart), got(rows * apart);
                    a.y = want.data();
                    contest.reference(a, 0, rows);
                    contest.contract.expect(want.untouched_outside({0, rows * apart - 5}), "wrote outside its rows");
                    for (auto& candidate : contest.candidates) {
                        got.reset();
                        a.y = got.data();
                        candidate.kernel(a, 0, rows);
                        const int64_t at = got.difference(want);
                        candidate.check.expect(at == got.kNone, [&] {
                            return "function " + std::to_string(number) + ", byte " + std::to_string(at);
                        });
                    }
                }
            }
    contest.close(report);
}

inline void check_float_softmax(Report& report, bool quick) {
    Contest<FloatSoftmaxFn> contest(report, "float_softmax", &Kernels::float_softmax);
    Random random(62);
    for (int64_t length : {1, 2, 7, 8, 15, 16, 17, 33, 64, 100, quick ? 129 : 5003})
        for (float scale : {1e-3f, 1.0f, 30.0f})
            for (bool safe : {false, true}) {
                constexpr int64_t kRows = 5;
                std::vector<float> x(static_cast<size_t>(kRows * length));
                for (float& v : x) v = scale * static_cast<float>(8 * random.unit() - 4);
                for (int64_t i = 0; i < length; ++i) x[static_cast<size_t>(i)] = -kInf;
                for (int64_t i = length; i < 2 * length; i += 2) x[static_cast<size_t>(i)] = -kInf;
                x[static_cast<size_t>(3 * length)] = length % 2 == 0 ? kInf : std::nanf("");
                compare_floats(contest, FloatSoftmaxArgs{x.data(), nullptr, length, safe}, kRows, kRows * length,
                               "a share");
            }
    contest.close(report);
}

inline void check_float_layer_norm(Report& report, bool quick) {
    Contest<FloatLayerNormFn> contest(report, "float_layer_norm", &Kernels::float_layer_norm);
    Random random(63);
    for (int64_t length : {1, 2, 7, 8, 31, 32, 33, 100, 384, 4095, 4096, 4097, quick ? 5000 : 100003})
        for (float shift : {0.0f, 100.0f}) {
            constexpr int64_t kRows = 4;
            std::vector<float> x(static_cast<size_t>(kRows * length)), weight(static_cast<size_t>(length)),
                bias(static_cast<size_t>(length));
            for (float& v : x) v = shift + static_cast<float>(4 * random.unit() - 2);
            for (float& v : weight) v = static_cast<float>(2 * random.unit() - 1);
            for (float& v : bias) v = static_cast<float>(2 * random.unit() - 1);
            x[static_cast<size_t>(3 * length)] = random.of(kExtremes);
            std::vector<float> other(x.size());
            for (float& v : other) v = static_cast<float>(2 * random.unit() - 1);
            for (const float* added : {static_cast<const float*>(nullptr), static_cast<const float*>(other.data())}) {
                FloatLayerNormArgs a{x.data(), nullptr, length, weight.data(), bias.data(), 1e-5, added};
                compare_floats(contest, a, kRows, kRows * length, added != nullptr ? "a norm of a sum" : "a norm");
                a.centered = false;
                compare_floats(contest, a, kRows, kRows * length, "an RMS norm");
            }
            FloatLayerNormArgs a{x.data(), nullptr, length, weight.data(), bias.data(), 1e-5, other.data()};
            std::vector<float> kept(x.size());
            a.sum = kept.data();
            compare_floats(contest, a, kRows, kRows * length, "a norm of a sum that is kept");
            bool is_sum = true;
            for (size_t i = 0; i < static_cast<size_t>(3 * length); ++i) is_sum = is_sum && kept[i] == x[i] + other[i];
            contest.contract.expect(is_sum, "the sum is not what was added");
        }
    contest.close(report);
}

// A product in two parts along its depth has the bytes of the whole.
inline void check_cut_along_depth(Contest<FloatGemmFn>& contest, FloatGemmArgs a, int64_t panels) {
    const int64_t size = a.rows * a.y_stride, first = a.depth / 2;
    Guarded<float> want(size), got(size);
    a.y = want.data();
    contest.reference(a, 0, panels);
    for (auto& candidate : contest.candidates) {
        got.reset();
        FloatGemmArgs part = a;
        part.y = got.data();
        part.depth = first;
        candidate.kernel(part, 0, panels);
        part.x += first;
        part.panels += first * kFloatPanel;
        part.depth = a.depth - first;
        part.resume = true;
        candidate.kernel(part, 0, panels);
        const int64_t at = got.difference(want);
        candidate.check.expect(at == got.kNone, [&] { return place("a product in two parts", at, want, got); });
    }
}

inline void check_float_depthwise(Report& report, bool quick) {
    Contest<FloatDepthwiseFn> contest(report, "float_depthwise", &Kernels::float_depthwise);
    Random random(65);
    for (int64_t channels : {1, 7, 8, 16, 17, quick ? 33 : 130})
        for (int64_t outputs : {1, 5, 6, 13})
            for (int64_t taps : {0, 1, 9}) {
                const int64_t places = 2 * outputs + taps;
                const std::vector<float> x = numbers(random, places * channels, 0.125f),
                                         w = numbers(random, taps * channels + 1, 0.125f),
                                         bias = numbers(random, channels, 0.125f);
                std::vector<int64_t> x_taps, w_taps;
                for (int64_t t = 0; t < taps; ++t) {
                    x_taps.push_back(t * channels);
                    w_taps.push_back((taps - 1 - t) * channels);
                }
                FloatDepthwiseArgs a;
                a.x = x.data();
                a.x_step = 2 * channels;
                a.w = w.data();
                a.x_taps = x_taps.data();
                a.w_taps = w_taps.data();
                a.taps = taps;
                a.channels = channels;
                a.y_step = channels;
                compare_floats(contest, a, outputs, outputs * channels, "an output");
                a.bias = bias.data();
                compare_floats(contest, a, outputs, outputs * channels, "an output with a bias");
            }
    contest.close(report);
}

inline void check_float_gemm(Report& report, bool quick) {
    Contest<FloatGemmFn> contest(report, "float_gemm", &Kernels::float_gemm);
    Random random(64);
    for (int64_t rows : {1, 2, 3, 4, 5, 6, 7, 13})
        for (int64_t depth : {0, 1, 7, 64})
            for (int64_t panels : {1, 2, 3, 9}) {
                if (quick && panels == 9 && depth == 64) continue;
                const int64_t stride = depth + 3, width = panels * kFloatPanel;
                const std::vector<float> x = numbers(random, rows * stride, 0.125f),
                                         w = numbers(random, width * depth + 1, 0.125f);
                const std::vector<float> bias = numbers(random, width, 0.125f);
                FloatGemmArgs a;
                a.x = x.data();
                a.rows = rows;
                a.depth = depth;
                a.x_stride = stride;
                a.panels = w.data();
                a.panel_stride = depth * kFloatPanel;
                a.y_stride = width;
                compare_floats(contest, a, panels, rows * width, "a product");
                a.bias = bias.data();
                compare_floats(contest, a, panels, rows * width, "a product and a bias");
                check_cut_along_depth(contest, a, panels);
            }
    // The operator: columns that do not fill panels, b as it is and turned, batches that share a matrix.
    for (int64_t rows : {1, 5, 200})
        for (int64_t columns : {1, 15, 16, 33, 70, 130})
            for (bool turned : {false, true}) {
                const int64_t depth = 9;
                std::vector<float> a(static_cast<size_t>(2 * rows * depth)), b(static_cast<size_t>(depth * columns));
                for (float& v : a) v = static_cast<float>(random.between(-9, 9));
                for (float& v : b) v = static_cast<float>(random.between(-9, 9));
                FloatMatrices m{{2}, {rows * depth}, {0}, rows, depth, columns, depth, columns, 1};
                if (turned) {
                    m.b_row = 1;
                    m.b_column = depth;
                }
                Guarded<float> y(2 * rows * columns);
                float_matmul(a.data(), b.data(), y.data(), m);
                bool right = y.untouched_outside({0, 2 * rows * columns});
                for (int64_t i = 0; i < 2 * rows * columns; ++i) {
                    float sum = 0;
                    for (int64_t k = 0; k < depth; ++k)
                        sum += a[static_cast<size_t>(i / columns * depth + k)] *
                               b[static_cast<size_t>(k * m.b_row + i % columns * m.b_column)];
                    right = right && y.data()[i] == sum;
                }
                contest.contract.expect(right, "a product of matrices is wrong");
            }
    contest.close(report);
}

}  // namespace zeropoint::check
