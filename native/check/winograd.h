// Winograd's algorithm wherever it is exact, also where the plain kernel would be faster: every listed gemm kernel that
// has it.
#pragma once

#include "check/convolution.h"
#include "operators/winograd.h"

namespace zeropoint::check {

// The kernel of `from` with transforms and products that cost nothing, so that every plan takes them; and how often.
struct FreeWinograd {
    explicit FreeWinograd(const GemmKernel& from) : winograd(*from.winograd), gemm(from) {
        multiply = winograd.multiply;
        winograd.costs = {};
        winograd.multiply = [](const WinogradArgs& args, int64_t begin, int64_t end) {
            ++calls;
            multiply(args, begin, end);
        };
        gemm.winograd = &winograd;
    }
    FreeWinograd(const FreeWinograd&) = delete;
    FreeWinograd& operator=(const FreeWinograd&) = delete;

    WinogradKernel winograd;
    GemmKernel gemm;
    static inline decltype(WinogradKernel::multiply) multiply = nullptr;  // of the last one made
    static inline std::atomic<int> calls{0};
};

inline std::vector<ConvCase> winograd_cases() {
    const auto square = [](int64_t in, int64_t out, int64_t padding) {
        return conv_shape(in, out, 1, {1, 3, 3}, {1, 1, 1}, {0, padding, padding});
    };
    return {
        {"whole tiles", square(32, 32, 1), 1, {1, 8, 12}},
        {"parts of tiles", square(32, 40, 1), 2, {1, 7, 9}},
        {"one pixel", square(16, 17, 1), 3, {1, 1, 1}},
        {"no padding", square(48, 33, 0), 1, {1, 10, 8}},
        {"wide padding", square(16, 16, 4), 1, {1, 3, 5}},
        {"more than 64 channels", square(80, 20, 1), 1, {1, 9, 6}},
        {"128 channels", square(128, 66, 1), 2, {1, 5, 5}},
        {"strips", conv_shape(64, 32, 1, {1, 3, 3}, {1, 1, 1}, {0, 2, 1}), 1, {1, 31, 67}},
        {"small images together", square(32, 50, 1), 7, {1, 3, 2}},
        {"planes", conv_shape(32, 32, 1, {1, 3, 3}, {1, 1, 1}, {1, 1, 0}), 2, {2, 5, 6}},
    };
}
// Of channels that not every kernel takes.
inline std::vector<ConvCase> narrow_winograd_cases() {
    return {
        {"4 channels", conv_shape(4, 5, 1, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}), 2, {1, 6, 5}},
        {"68 channels", conv_shape(68, 17, 1, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}), 1, {1, 5, 9}},
        {"100 channels", conv_shape(100, 16, 1, {1, 3, 3}), 1, {1, 7, 6}},
    };
}

// The largest weights and inputs, with so many channels that sums fill the window, or leave it; and weights with zero
// points.
inline void check_winograd_windows(Random& random, FreeWinograd& kernel, Check& check) {
    enum Kind { kLeast, kGreatest, kEither, kSome, kZeroPoints };
    const int64_t step = kernel.winograd.multiple, most = kWinogradWeights / (9 * 128) / step * step, outputs = 3;
    for (const int64_t channels : {most, most + step, step})
        for (const Kind kind : {kLeast, kGreatest, kEither, kSome, kZeroPoints})
            for (const int32_t zero_point : {0, 128, 255}) {
                const ConvShape shape = conv_shape(channels, outputs, 1, {1, 3, 3}, {1, 1, 1}, {0, 1, 1});
                const ConvCase conv{"window", shape, 1, {1, 4, 5}};
                const int64_t depth = 9 * channels;
                MatmulCase c =
                    matmul_case(random, 20 * channels, outputs * depth, 20 * outputs, outputs, depth, Finish::f32);
                c.w_type = IntType::s8;
                c.x_type = IntType::u8;
                c.x_zero_point = zero_point;
                c.w_zero_point.clear();
                if (kind == kZeroPoints)
                    for (int64_t i = 0; i < outputs; ++i)
                        c.w_zero_point.push_back(static_cast<int32_t>(random.between(-99, 99)));
                for (uint8_t& x : c.x) x = kind == kLeast || random.below(2) != 0 ? 255 : 0;
                for (size_t i = 0; i < c.w.size(); ++i) {
                    const bool either = random.below(2) != 0;
                    if (kind != kZeroPoints)
                        c.w[i] = static_cast<uint8_t>(kind == kGreatest || (kind == kEither && either) ? 127
                                                      : kind == kSome && i % 3 == 2                    ? 0
                                                                                                       : -128);
                }
                const std::vector<uint8_t> want = plain_convolution(c, conv);
                const ConvPlan plan(c.weights(), conv.shape, {kernel.gemm, depthwise_portable()});
                const int before = FreeWinograd::calls;
                expect_bytes(check, c, want, conv.name, [&](const MatmulOutput& y) {
                    plan.run({c.x.data(), c.x_type, c.x_zero_point}, conv.images, conv.in, y);
                });
                const bool exact = winograd_is_exact(c.weights(), conv.shape);
                check.expect(exact == (FreeWinograd::calls > before), "the window decides which kernel runs");
                if (kind == kLeast) check.expect(exact == (channels <= most), "sums of the window's size fit it");
            }
    // A weight is far from its zero point.
    const ConvShape shape = conv_shape(step, 1, 1, {1, 3, 3});
    std::vector<uint8_t> w(static_cast<size_t>(9 * step), 250);
    for (const int32_t zero_point : {250 - 227, 250 - 228})
        check.expect(winograd_is_exact({w.data(), IntType::u8, &zero_point, 1}, shape) == (zero_point == 250 - 227),
                     "weights must fit 16 bits");
}

// Whatever the threads and the size: a cut takes no more memory than was said, and has work for every part of it.
inline void check_winograd_cuts(Report& report) {
    Check check("winograd", "cuts");
    constexpr WinogradCosts kFree{}, kUsual{13, 7, 27, 2};
    for (const int threads : {1, 2, 3, 4, 8, 32})
        for (const int64_t channels : {4, 64, 512, 2048})
            for (const int64_t images : {1, 3, 16, 100})
                for (const auto& [height, width] : {std::pair<int64_t, int64_t>{1, 1}, {7, 7}, {56, 57}, {3, 5000}}) {
                    const ConvShape shape = conv_shape(channels, 70, 1, {1, 3, 3}, {1, 1, 1}, {0, 1, 1});
                    const WinogradOutput out{images, height, width};
                    const double most = winograd_scratch(shape, images, {1, height, width});
                    for (const WinogradCosts& costs : {kFree, kUsual}) {
                        const WinogradCut cut = winograd_cut(costs, shape, out, threads);
                        if (cut.lines == 0) continue;
                        const int64_t tiles = cut.lines * cut.together * out.tile_columns();
                        check.expect(static_cast<double>(WinogradSizes(tiles, channels).all()) <= most,
                                     "a cut takes more memory than was said");
                        check.expect(cut.lines <= out.tile_lines() && cut.together <= images &&
                                         (cut.together == 1 || cut.lines == out.tile_lines()) &&
                                         cut.panels_per_chunk >= 1 && cut.panels_per_chunk <= 5,
                                     "a part of a cut is empty");
                    }
                }
    // The weights of one small image are transformed for too few tiles.
    const ConvShape wide = conv_shape(512, 512, 1, {1, 3, 3}, {1, 1, 1}, {0, 1, 1});
    check.expect(winograd_cut(kUsual, wide, {1, 7, 7}, 1).lines == 0, "one small image has few tiles for its weights");
    check.expect(winograd_cut(kUsual, wide, {16, 7, 7}, 1).together > 1, "small images are taken together");
    report.add(check);
}

inline void check_winograd(Report& report, bool quick) {
    check_winograd_cuts(report);
    Random random(36);
    for (const GemmCandidate& candidate : gemm_candidates(nullptr, "winograd")) {
        if (candidate.kernel.winograd == nullptr) continue;
        FreeWinograd kernel(candidate.kernel);
        std::vector<ConvCandidate> candidates;
        candidates.push_back({{kernel.gemm, depthwise_portable()}, candidate.check});
        FreeWinograd::calls = 0;
        check_conv_cases(winograd_cases(), candidates, quick);
        candidates[0].check.expect(FreeWinograd::calls > 0, "no plan took it");
        check_conv_cases(narrow_winograd_cases(), candidates, quick);
        check_winograd_windows(random, kernel, candidates[0].check);
        report.add(candidates[0].check);
    }
}

inline void check_all_gemm(Report& report, bool quick) {
    check_gemm(report, quick);
    check_float_stage(report, quick);
    check_gemm_callers(report, quick);
    check_convolution(report, quick);
    check_winograd(report, quick);
    check_kept(report);
    check_matmul_refusals(report);
}

}  // namespace zeropoint::check
