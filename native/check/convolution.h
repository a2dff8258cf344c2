// Convolutions against their definition: every listed gemm and depthwise kernel this machine can run.
#pragma once

#include "check/matmul.h"
#include "check/selection.h"
#include "operators/binary.h"
#include "operators/convolution.h"

#include <memory>

namespace zeropoint::check {

struct ConvCase {
    const char* name;
    ConvShape shape;
    int64_t images;
    Size3 in;
    bool with_table = false;  // else what comes at the end is random
};

inline ConvShape conv_shape(int64_t in, int64_t out, int64_t groups, Size3 kernel, Size3 stride = {1, 1, 1},
                            Size3 padding = {0, 0, 0}, Size3 dilation = {1, 1, 1}) {
    ConvShape s;
    s.in_channels = in;
    s.out_channels = out;
    s.groups = groups;
    s.kernel = kernel;
    s.stride = stride;
    s.padding = padding;
    s.dilation = dilation;
    return s;
}
inline ConvShape transposed(ConvShape s, Size3 output_padding = {0, 0, 0}) {
    s.transposed = true;
    s.output_padding = output_padding;
    return s;
}

inline std::vector<ConvCase> conv_cases() {
    return {
        {"3x3", conv_shape(8, 20, 1, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}), 2, {1, 7, 9}},
        {"3x3, odd channels", conv_shape(5, 17, 1, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}), 1, {1, 6, 5}},
        {"3x3, Winograd", conv_shape(32, 40, 1, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}), 2, {1, 7, 9}},
        {"3x3, Winograd, no padding", conv_shape(48, 33, 1, {1, 3, 3}), 1, {1, 10, 8}},
        {"3x3, Winograd, strips", conv_shape(64, 32, 1, {1, 3, 3}, {1, 1, 1}, {0, 2, 1}), 1, {1, 11, 67}},
        {"3x3, Winograd, planes", conv_shape(32, 32, 1, {1, 3, 3}, {1, 1, 1}, {1, 1, 0}), 2, {2, 5, 6}},
        {"3x3 stride 2", conv_shape(16, 33, 1, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}), 1, {1, 9, 8}},
        {"stem 7x7 stride 2", conv_shape(3, 18, 1, {1, 7, 7}, {1, 2, 2}, {0, 3, 3}), 1, {1, 20, 23}},
        {"one channel", conv_shape(1, 4, 1, {1, 5, 5}, {1, 1, 1}, {0, 2, 2}), 2, {1, 8, 8}},
        {"1x1", conv_shape(12, 20, 1, {1, 1, 1}), 2, {1, 5, 4}},
        {"1x1 stride 2", conv_shape(12, 20, 1, {1, 1, 1}, {1, 2, 2}), 2, {1, 7, 6}},
        {"1x1 stride 3, padded", conv_shape(9, 5, 1, {1, 1, 1}, {1, 3, 2}, {0, 2, 1}), 1, {1, 7, 8}},
        {"stride beyond kernel", conv_shape(4, 6, 1, {1, 2, 2}, {1, 4, 3}, {0, 1, 0}), 1, {1, 15, 14}},
        {"dilation", conv_shape(6, 16, 1, {1, 3, 3}, {1, 1, 1}, {0, 2, 3}, {1, 2, 3}), 1, {1, 9, 10}},
        {"dilation and stride", conv_shape(6, 16, 1, {1, 3, 2}, {1, 2, 3}, {0, 4, 3}, {1, 3, 2}), 1, {1, 12, 11}},
        {"padding beyond input", conv_shape(4, 7, 1, {1, 3, 3}, {1, 1, 1}, {0, 5, 6}), 1, {1, 2, 1}},
        {"1d", conv_shape(10, 19, 1, {1, 1, 4}, {1, 1, 2}, {0, 0, 2}), 3, {1, 1, 29}},
        {"1d, long", conv_shape(2, 3, 1, {1, 1, 3}, {1, 1, 1}, {0, 0, 1}), 1, {1, 1, 700}},
        {"column", conv_shape(1, 19, 1, {1, 33, 1}, {1, 4, 1}, {0, 16, 0}), 2, {1, 90, 1}},
        {"column, wide", conv_shape(3, 17, 1, {1, 5, 1}, {1, 2, 1}, {0, 2, 0}), 1, {1, 20, 3}},
        {"3d", conv_shape(7, 16, 1, {2, 3, 3}, {1, 2, 1}, {1, 1, 0}), 2, {4, 5, 6}},
        {"3d, dilated groups", conv_shape(6, 10, 2, {3, 2, 3}, {2, 1, 1}, {2, 0, 1}, {2, 1, 1}), 1, {5, 4, 6}},
        {"groups", conv_shape(12, 24, 3, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}), 2, {1, 5, 6}},
        {"groups, wide", conv_shape(40, 66, 2, {1, 3, 3}, {1, 2, 1}, {0, 1, 1}), 1, {1, 6, 5}},
        {"groups, odd", conv_shape(9, 6, 3, {1, 2, 3}, {1, 1, 2}, {0, 0, 1}), 1, {1, 6, 9}},
        {"groups of 1, two outputs", conv_shape(5, 10, 5, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}), 1, {1, 6, 7}},
        {"transposed", transposed(conv_shape(8, 18, 1, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}), {0, 1, 1}), 2, {1, 5, 4}},
        {"transposed stride 1", transposed(conv_shape(5, 4, 1, {1, 3, 3}, {1, 1, 1}, {0, 1, 0})), 1, {1, 5, 4}},
        {"transposed, no overlap", transposed(conv_shape(6, 9, 1, {1, 2, 2}, {1, 2, 2})), 1, {1, 4, 5}},
        {"transposed, gaps", transposed(conv_shape(6, 9, 1, {1, 2, 1}, {1, 3, 3}), {0, 2, 1}), 1, {1, 4, 5}},
        {"transposed, dilation",
         transposed(conv_shape(4, 7, 1, {1, 3, 4}, {1, 2, 3}, {0, 2, 1}, {1, 3, 2})),
         1,
         {1, 5, 6}},
        {"transposed groups",
         transposed(conv_shape(8, 12, 4, {1, 4, 3}, {1, 2, 2}, {0, 1, 1}), {0, 0, 1}),
         2,
         {1, 4, 5}},
        {"transposed 1d", transposed(conv_shape(8, 12, 1, {1, 1, 5}, {1, 1, 3}, {0, 0, 2}), {0, 0, 2}), 2, {1, 1, 17}},
        {"transposed column",
         transposed(conv_shape(3, 12, 1, {1, 5, 1}, {1, 3, 1}, {0, 2, 0}), {0, 2, 0}),
         2,
         {2, 17, 1}},
        {"transposed 3d", transposed(conv_shape(4, 6, 2, {3, 2, 3}, {2, 2, 2}, {1, 0, 1}), {1, 0, 1}), 1, {3, 3, 4}},
        {"transposed 1x1", transposed(conv_shape(8, 12, 1, {1, 1, 1})), 2, {1, 4, 5}},
        // Rows that go through a table and are not neighbours in the output: short ones, of lengths that are copied
        // each in its own way, and long ones.
        {"table, 16 channels apart", transposed(conv_shape(8, 16, 1, {1, 4, 4}, {1, 2, 2})), 1, {1, 5, 7}, true},
        {"table, 32 channels apart", transposed(conv_shape(8, 32, 1, {1, 2, 2}, {1, 2, 2})), 1, {1, 5, 7}, true},
        {"table, 64 channels apart", transposed(conv_shape(4, 64, 1, {1, 3, 3}, {1, 2, 2})), 2, {1, 3, 7}, true},
        {"table, 50 channels apart", transposed(conv_shape(4, 50, 1, {1, 2, 2}, {1, 2, 2})), 1, {1, 4, 7}, true},
        {"table, 300 channels apart", transposed(conv_shape(4, 300, 1, {1, 2, 2}, {1, 2, 2})), 1, {1, 2, 5}, true},
        {"table, groups apart", conv_shape(32, 64, 2, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}), 1, {1, 5, 7}, true},
        // Lines as tiles cut them: exactly, into unequal segments, shorter than any segment; and groups of panels.
        {"lines of 14", conv_shape(4, 96, 1, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}), 1, {1, 5, 14}},
        {"lines of 7", conv_shape(8, 64, 1, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}), 1, {1, 7, 7}},
        {"lines of 13", conv_shape(5, 80, 1, {1, 2, 3}, {1, 1, 1}, {0, 0, 1}), 1, {1, 4, 13}},
        {"lines of 10", conv_shape(7, 48, 1, {1, 3, 2}), 1, {1, 6, 11}},
        {"lines of 8", conv_shape(3, 130, 1, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}), 1, {1, 9, 16}},
        {"lines of 4", conv_shape(6, 67, 1, {1, 2, 2}), 2, {1, 6, 5}},
        {"lines of 3", conv_shape(6, 100, 1, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}), 2, {1, 5, 3}},
        {"lines of 2", conv_shape(9, 40, 1, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}), 1, {1, 7, 2}},
        {"lines of 241", conv_shape(3, 33, 1, {1, 2, 2}), 1, {1, 3, 242}},
        {"1x1 stride 2, in place", conv_shape(64, 40, 1, {1, 1, 1}, {2, 2, 3}), 2, {3, 5, 10}},
        {"1x1 groups, in place", conv_shape(128, 40, 2, {1, 1, 1}, {1, 1, 2}), 1, {1, 4, 9}},
        {"1x1 stride 2, groups of panels", conv_shape(16, 80, 1, {1, 1, 1}, {1, 2, 2}), 1, {1, 14, 28}},
    };
}
inline std::vector<ConvCase> depthwise_cases() {
    return {
        {"3x3", conv_shape(32, 32, 32, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}), 2, {1, 7, 9}},
        {"3x3, more than a part", conv_shape(40, 40, 40, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}), 1, {1, 21, 25}},
        {"3x3 stride 2, odd channels", conv_shape(37, 37, 37, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}), 1, {1, 10, 9}},
        {"5x5", conv_shape(16, 16, 16, {1, 5, 5}, {1, 1, 1}, {0, 2, 2}), 1, {1, 8, 8}},
        {"3x3, blocks of all sizes", conv_shape(187, 187, 187, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}), 2, {1, 5, 6}},
        {"3x3 stride 2, several units", conv_shape(208, 208, 208, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}), 1, {1, 9, 12}},
        {"3x3, sides only", conv_shape(66, 66, 66, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}), 2, {1, 1, 2}},
        {"3x3, no padding", conv_shape(96, 96, 96, {1, 3, 3}), 1, {1, 6, 11}},
        {"3x3, wide padding", conv_shape(64, 64, 64, {1, 3, 3}, {1, 1, 1}, {0, 5, 4}), 1, {1, 2, 3}},
        {"3x3, strides 2 and 1", conv_shape(80, 80, 80, {1, 3, 3}, {1, 2, 1}, {0, 1, 1}), 1, {1, 8, 7}},
        {"1x3, strides 1 and 2", conv_shape(48, 48, 48, {1, 1, 3}, {1, 1, 2}, {0, 0, 1}), 3, {1, 3, 10}},
        {"1x3, stride beyond it", conv_shape(34, 34, 34, {1, 1, 3}, {1, 2, 1}, {0, 0, 0}), 1, {1, 5, 8}},
        {"3x3, several depths", conv_shape(72, 72, 72, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}), 2, {3, 4, 5}},
        {"5x5 stride 2", conv_shape(104, 104, 104, {1, 5, 5}, {1, 2, 2}, {0, 2, 2}), 1, {1, 11, 14}},
        {"7x7", conv_shape(112, 112, 112, {1, 7, 7}, {1, 1, 1}, {0, 3, 3}), 1, {1, 9, 10}},
        {"7x7 stride 2", conv_shape(65, 65, 65, {1, 7, 7}, {1, 2, 2}, {0, 3, 3}), 1, {1, 12, 13}},
        {"dilation", conv_shape(3, 3, 3, {1, 3, 2}, {1, 1, 2}, {0, 2, 1}, {1, 2, 3}), 2, {1, 8, 9}},
        {"1x1", conv_shape(20, 20, 20, {1, 1, 1}), 1, {1, 3, 4}},
        {"1d", conv_shape(18, 18, 18, {1, 1, 4}, {1, 1, 1}, {0, 0, 3}), 2, {1, 1, 31}},
        {"1d, long kernel", conv_shape(70, 70, 70, {1, 1, 31}, {1, 1, 1}, {0, 0, 15}), 2, {1, 1, 61}},
        {"1d, stride and dilation", conv_shape(33, 33, 33, {1, 1, 9}, {1, 1, 3}, {0, 0, 7}, {1, 1, 2}), 1, {1, 1, 90}},
        {"1d kernel, lines", conv_shape(17, 17, 17, {1, 1, 9}, {1, 1, 1}, {0, 0, 4}), 1, {1, 3, 40}},
        {"1d, transposed", transposed(conv_shape(20, 20, 20, {1, 1, 9}, {1, 1, 2}, {0, 0, 4})), 1, {1, 1, 30}},
        {"3d", conv_shape(6, 6, 6, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}), 1, {3, 4, 5}},
        {"transposed", transposed(conv_shape(19, 19, 19, {1, 4, 4}, {1, 2, 2}, {0, 1, 1})), 1, {1, 5, 4}},
        {"transposed, gaps", transposed(conv_shape(5, 5, 5, {1, 1, 2}, {1, 2, 3}), {0, 1, 2}), 1, {1, 5, 4}},
    };
}

// The definition: every output place with every kernel position; padding and what lies between the inputs of a
// transposed convolution count nothing.
inline std::vector<uint8_t> plain_convolution(const MatmulCase& c, const ConvCase& conv) {
    const ConvShape& s = conv.shape;
    const Size3& in = conv.in;
    const Size3 out = s.output_size(in);
    const int64_t cg = s.in_channels / s.groups, ng = s.out_channels / s.groups;
    std::vector<uint8_t> y(static_cast<size_t>(conv.images * out[0] * out[1] * out[2] * s.out_channels) * c.element());
    // The input place that output o reads with kernel position k, or -1.
    const auto input = [&](size_t d, int64_t o, int64_t k) -> int64_t {
        if (!s.transposed) {
            const int64_t i = o * s.stride[d] - s.padding[d] + k * s.dilation[d];
            return i >= 0 && i < in[d] ? i : -1;
        }
        const int64_t scaled = o + s.padding[d] - k * s.dilation[d];
        return scaled >= 0 && scaled % s.stride[d] == 0 && scaled / s.stride[d] < in[d] ? scaled / s.stride[d] : -1;
    };
    int64_t at = 0;
    for (int64_t image = 0; image < conv.images; ++image)
        for (int64_t od = 0; od < out[0]; ++od)
            for (int64_t oh = 0; oh < out[1]; ++oh)
                for (int64_t ow = 0; ow < out[2]; ++ow)
                    for (int64_t n = 0; n < s.out_channels; ++n, ++at) {
                        int64_t sum = 0;
                        for (int64_t kd = 0; kd < s.kernel[0]; ++kd)
                            for (int64_t kh = 0; kh < s.kernel[1]; ++kh)
                                for (int64_t kw = 0; kw < s.kernel[2]; ++kw) {
                                    const int64_t id = input(0, od, kd), ih = input(1, oh, kh), iw = input(2, ow, kw);
                                    if (id < 0 || ih < 0 || iw < 0) continue;
                                    const int64_t tap = (kd * s.kernel[1] + kh) * s.kernel[2] + kw;
                                    const int64_t taps = s.kernel[0] * s.kernel[1] * s.kernel[2];
                                    const int64_t place = ((image * in[0] + id) * in[1] + ih) * in[2] + iw;
                                    for (int64_t j = 0; j < cg; ++j) {
                                        const uint8_t x =
                                            c.x[static_cast<size_t>(place * s.in_channels + n / ng * cg + j)];
                                        const uint8_t w = c.w[static_cast<size_t>((n * taps + tap) * cg + j)];
                                        sum += (value_of(x, c.x_type) - c.x_zero_point) *
                                               (value_of(w, c.w_type) - c.w_zero(n));
                                    }
                                }
                        finish_plainly(c, sum, n, at, y.data());
                    }
    return y;
}

// (images, places, channels) to (images, channels, places)
inline std::vector<uint8_t> channels_first(const std::vector<uint8_t>& x, int64_t images, int64_t channels) {
    const int64_t places = static_cast<int64_t>(x.size()) / images / channels;
    std::vector<uint8_t> r(x.size());
    for (int64_t i = 0; i < images; ++i)
        for (int64_t p = 0; p < places; ++p)
            for (int64_t c = 0; c < channels; ++c)
                r[static_cast<size_t>((i * channels + c) * places + p)] =
                    x[static_cast<size_t>((i * places + p) * channels + c)];
    return r;
}

// The sum of a result with another tensor, which a convolution can make at once. `made`: the result without it.
struct Combined {
    std::vector<uint8_t> other, want;
    BinaryArgs then;

    Combined(Random& random, const MatmulOutput& out, const std::vector<uint8_t>& made) : want(made.size()) {
        BinaryTensors t;
        t.type = out.type == OutputType::u8 ? IntType::u8 : IntType::s8;
        t.a = {nullptr, 0.5f, out.zero_point};
        t.b = {nullptr, 0.25f, 3};
        t.scale = 0.625f;
        t.zero_point = 7;
        other = values(random, static_cast<int64_t>(made.size()), t.type, Values::any);
        then = binary_args(t);
        then.b = other.data();
        BinaryArgs all = then;
        all.a = made.data();
        all.y = want.data();
        binary_reference(all, 0, static_cast<int64_t>(made.size()));
    }
    Combined(const Combined&) = delete;
    Combined& operator=(const Combined&) = delete;
};

struct ConvCandidate {
    ConvKernels kernels;
    Check check;
};

inline void check_conv_cases(const std::vector<ConvCase>& cases, std::vector<ConvCandidate>& candidates, bool quick) {
    const int before = num_threads();
    Random random(33);
    int count = 0;
    for (const ConvCase& conv : cases)
        for (int round = 0; round < (quick ? 1 : 5); ++round) {
            const ConvShape& s = conv.shape;
            const Size3 out = s.output_size(conv.in);
            const int64_t taps = s.kernel[0] * s.kernel[1] * s.kernel[2], cg = s.in_channels / s.groups;
            const int64_t outputs = conv.images * out[0] * out[1] * out[2] * s.out_channels;
            const Finish random_finish = static_cast<Finish>(random.below(kFinishes));
            const Finish finish = conv.with_table ? Finish::table : random_finish;
            const Values kind = round == 1 ? Values::alternating : Values::any;
            const MatmulCase c =
                matmul_case(random, conv.images * conv.in[0] * conv.in[1] * conv.in[2] * s.in_channels,
                            s.out_channels * taps * cg, outputs, s.out_channels, taps * cg, finish, kind, kind);
            const std::vector<uint8_t> want = plain_convolution(c, conv);
            const std::vector<uint8_t> first = channels_first(c.x, conv.images, s.in_channels);
            std::unique_ptr<Combined> combined;
            if (c.out.type != OutputType::f32 && c.out.z == nullptr)
                combined = std::make_unique<Combined>(random, c.out, want);
            set_num_threads(1 + count++ % 3);
            for (ConvCandidate& candidate : candidates) {
                const ConvPlan plan(c.weights(), s, candidate.kernels);
                expect_bytes(candidate.check, c, want, conv.name, [&](const MatmulOutput& y) {
                    // Without spare room, so that AddressSanitizer sees what is read beyond the end.
                    const std::vector<uint8_t> x(c.x.begin(), c.x.end());
                    plan.run({x.data(), c.x_type, c.x_zero_point}, conv.images, conv.in, y);
                });
                expect_bytes(candidate.check, c, want, std::string(conv.name) + ", channels first",
                             [&](const MatmulOutput& y) {
                                 plan.run({first.data(), c.x_type, c.x_zero_point}, conv.images, conv.in, y, true);
                             });
                if (combined)
                    expect_bytes(candidate.check, c, combined->want, std::string(conv.name) + ", and a sum",
                                 [&](const MatmulOutput& y) {
                                     MatmulOutput out_and_sum = y;
                                     out_and_sum.then = &combined->then;
                                     plan.run({c.x.data(), c.x_type, c.x_zero_point}, conv.images, conv.in,
                                              out_and_sum);
                                 });
            }
        }
    set_num_threads(before);
}

inline void check_convolution(Report& report, bool quick) {
    std::vector<ConvCandidate> candidates;
    for (const GemmCandidate& c : gemm_candidates(nullptr, "convolution"))
        candidates.push_back({{c.kernel, depthwise_portable()}, c.check});
    check_conv_cases(conv_cases(), candidates, quick);
    for (const ConvCandidate& c : candidates) report.add(c.check);
}

inline void check_depthwise(Report& report, bool quick) {
    std::vector<ConvCandidate> candidates;
    for (const Listed& k : listed()) {
        if (k.operation != "depthwise") continue;
        const std::string missing = why_not(k.isa);
        if (missing.empty())
            candidates.push_back({{gemm_amx_emulated(), k.kernels.depthwise()}, Check("depthwise", isa_name(k.isa))});
        else
            report.skip("depthwise", isa_name(k.isa), missing);
    }
    check_conv_cases(depthwise_cases(), candidates, quick);
    for (const ConvCandidate& c : candidates) report.add(c.check);
}

// Plans keep what follows from the first shapes, zero points and arrays they see. More of them than there is room for,
// asked for by many callers at once, get the bytes of plans that have kept nothing.
inline void check_kept(Report& report) {
    Check check("convolution", "what plans keep");
    const int before = num_threads();
    set_num_threads(2);
    Random random(35);
    const int64_t channels = 5, outputs = 40, kernel = 3;
    const ConvShape shape = conv_shape(channels, outputs, 1, {1, kernel, kernel}, {1, 1, 1}, {0, 1, 1});
    struct Call {
        int64_t size;
        int32_t zero_point;
        std::vector<uint8_t> x, want;
    };
    for (GemmCandidate& candidate : gemm_candidates(nullptr, "kept")) {
        const MatmulCase c = matmul_case(random, 1, outputs * kernel * kernel * channels, 1, outputs,
                                         kernel * kernel * channels, Finish::relu);
        const ConvKernels kernels{candidate.kernel, depthwise_portable()};
        const auto run = [&](const ConvPlan& plan, const Call& call, bool kept, std::vector<uint8_t>& y) {
            MatmulOutput out = c.out;
            out.y = y.data();
            out.bias = nullptr;
            out.kept = kept;
            plan.run({call.x.data(), c.x_type, call.zero_point}, 1, {1, call.size, call.size}, out);
        };
        std::vector<Call> calls;
        for (int32_t i = 0; i < 7; ++i) {
            Call call{3 + i, 11 * i, values(random, (3 + i) * (3 + i) * channels, c.x_type, Values::any), {}};
            call.want.resize(static_cast<size_t>(call.size * call.size * outputs));
            run(ConvPlan(c.weights(), shape, kernels), call, false, call.want);
            calls.push_back(call);
        }
        const ConvPlan plan(c.weights(), shape, kernels);
        std::atomic<int> wrong{0};
        std::vector<std::thread> callers;
        for (size_t caller = 0; caller < 3; ++caller)
            callers.emplace_back([&, caller] {
                for (size_t i = 0; i < 3 * calls.size(); ++i) {
                    const Call& call = calls[(i + 2 * caller) % calls.size()];
                    std::vector<uint8_t> y(call.want.size());
                    run(plan, call, true, y);
                    if (y != call.want) ++wrong;
                }
            });
        for (std::thread& t : callers) t.join();
        check.expect(wrong == 0, "a caller got another result");
    }
    set_num_threads(before);
    report.add(check);
}

// What is refused, before anything is read or written, and with which words.
inline void check_matmul_refusals(Report& report) {
    Check c("gemm", "bad parameters");
    const std::vector<int8_t> w(64, 1);
    const std::vector<uint8_t> x(64, 1);
    std::vector<uint8_t> y(64);
    const std::vector<float> multiplier(8, 1.0f);
    const auto refused = [&](const char* words, const auto& call) {
        const std::string text = refusal(call);
        c.expect(contains(text, words), [&] { return "expected '" + std::string(words) + "' in '" + text + "'"; });
    };
    const WeightTensor weights{w.data(), IntType::s8, nullptr, 0};
    const std::vector<int32_t> zeros(8, 0), beyond(1, 128);
    refused("3 weight zero_points for 8", [&] { LinearPlan({w.data(), IntType::s8, zeros.data(), 3}, 8, 8); });
    refused("128, outside s8", [&] { LinearPlan({w.data(), IntType::s8, beyond.data(), 1}, 8, 8); });
    refused("must be u8 or s8", [&] { LinearPlan({w.data(), IntType::s32, nullptr, 0}, 8, 8); });
    const LinearPlan plan(weights, 8, 8);
    const auto output = [&](const auto& change) {
        MatmulOutput o;
        o.y = y.data();
        o.multiplier = multiplier.data();
        change(o);
        return o;
    };
    const MatmulInput input{x.data(), IntType::u8, 3};
    const auto run = [&](const MatmulInput& in, const auto& change) { plan.run(in, 2, output(change)); };
    refused("256, outside u8", [&] { run({x.data(), IntType::u8, 256}, [](MatmulOutput&) {}); });
    refused("3 multipliers for 8", [&] { run(input, [](MatmulOutput& o) { o.multipliers = 3; }); });
    refused("0 multipliers for 8", [&] { run(input, [](MatmulOutput& o) { o.multiplier = nullptr; }); });
    refused("-1, outside u8", [&] { run(input, [](MatmulOutput& o) { o.zero_point = -1; }); });
    refused("bounds", [&] { run(input, [](MatmulOutput& o) { o.lo = 9, o.hi = 8; }); });
    refused("bounds", [&] { run(input, [](MatmulOutput& o) { o.type = OutputType::s8; }); });
    refused("8-bit output", [&] {
        run(input, [&](MatmulOutput& o) {
            o.type = OutputType::f32;
            o.z = x.data();
        });
    });
    const FloatStage gelu;
    refused("only thing", [&] {
        run(input, [&](MatmulOutput& o) {
            o.type = OutputType::f32;
            o.slope = 0.5f;
            o.function = &gelu;
        });
    });
    refused("only thing", [&] {
        run(input, [&](MatmulOutput& o) {
            o.z = x.data();
            o.function = &gelu;
        });
    });
    refused("only a 1x1 convolution", [&] {
        ConvPlan(weights, conv_shape(4, 4, 4, {1, 3, 3})).run(input, 1, {1, 3, 3}, output([&](MatmulOutput& o) {
                                                                  o.function = &gelu;
                                                              }));
    });
    refused("only a 1x1 convolution", [&] {
        ConvPlan(weights, conv_shape(2, 2, 1, {1, 3, 3})).run(input, 1, {1, 3, 3}, output([&](MatmulOutput& o) {
                                                                  o.function = &gelu;
                                                              }));
    });
    const auto convolution = [&](const ConvShape& s) { ConvPlan(weights, s); };
    refused("3 groups", [&] { convolution(conv_shape(4, 6, 3, {1, 1, 1})); });
    refused("positive along the height", [&] { convolution(conv_shape(4, 4, 1, {1, 0, 1})); });
    refused("negative along the width", [&] { convolution(conv_shape(4, 4, 1, {1, 1, 1}, {1, 1, 1}, {0, 0, -1})); });
    refused("needs a transposed convolution", [&] {
        ConvShape s = conv_shape(4, 4, 1, {1, 1, 1});
        s.output_padding = {0, 1, 0};
        convolution(s);
    });
    refused("must be smaller than stride",
            [&] { convolution(transposed(conv_shape(4, 4, 1, {1, 1, 1}, {1, 2, 2}), {0, 2, 0})); });
    const ConvPlan small(weights, conv_shape(2, 2, 1, {1, 3, 3}));
    refused("an input of 2 along the height is too small",
            [&] { small.run(input, 1, {1, 2, 5}, output([](MatmulOutput&) {})); });
    report.add(c);
}

}  // namespace zeropoint::check
