#include "operators/pooling.h"

#include "cpu/memory.h"
#include "kernels/registry.h"
#include "operators/rows.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace zeropoint {
namespace {

// The windows of one axis, and the memory behind them.
struct Axis {
    WindowAxis axis;
    std::vector<Window> windows;
    std::vector<int64_t> divisors, alike;

    Axis(int64_t in, int64_t out)
        : windows(static_cast<size_t>(out)),
          divisors(static_cast<size_t>(out)),
          alike(static_cast<size_t>(out)) {
        axis.in = in;
        axis.out = out;
    }
    const WindowAxis& get() {
        const auto inputs = [&](size_t o) { return windows[o].end - windows[o].begin; };
        for (size_t o = windows.size(); o-- > 0;) {
            const bool same = o + 1 < alike.size() && divisors[o] == divisors[o + 1] && inputs(o) == inputs(o + 1);
            alike[o] = same ? alike[o + 1] : static_cast<int64_t>(o) + 1;
        }
        axis.windows = windows.data();
        axis.divisors = divisors.data();
        axis.alike = alike.data();
        return axis;
    }
};

Axis sliding(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation,
             bool count_padding) {
    Axis a(in, out);
    a.axis.step = dilation;
    a.axis.stride = stride;
    a.axis.taps = kernel;
    for (int64_t o = 0; o < out; ++o) {
        int64_t begin = o * stride - padding;
        const int64_t end = std::min(begin + (kernel - 1) * dilation + 1, in + padding);
        const int64_t size = end - begin;
        if (begin >= 0 && begin + (kernel - 1) * dilation < in) {
            if (a.axis.regular_end == 0) a.axis.regular = o;
            a.axis.regular_end = o + 1;
        }
        if (begin < 0) begin += (-begin + dilation - 1) / dilation * dilation;
        Window& w = a.windows[static_cast<size_t>(o)];
        w = {begin, std::max(begin, std::min(end, in))};
        a.divisors[static_cast<size_t>(o)] = count_padding ? size : w.end - w.begin;
    }
    return a;
}

Axis dividing(int64_t in, int64_t out) {
    Axis a(in, out);
    for (int64_t o = 0; o < out; ++o) {
        // In float32, as PyTorch has it.
        const float begin = static_cast<float>(o * in) / static_cast<float>(out);
        const float end = static_cast<float>((o + 1) * in) / static_cast<float>(out);
        Window& w = a.windows[static_cast<size_t>(o)];
        w = {static_cast<int64_t>(std::floor(begin)), std::min(static_cast<int64_t>(std::ceil(end)), in)};
        a.divisors[static_cast<size_t>(o)] = w.end - w.begin;
    }
    return a;
}

PoolShape shape_of(const PoolTensor& t, std::array<Axis, 3>& axes) {
    PoolShape s;
    s.depth = axes[0].get();
    s.height = axes[1].get();
    s.width = axes[2].get();
    s.pixel = s.channels = t.channels;
    // Too few rows for the threads, as in global pooling of one image: share the channels, too.
    constexpr int64_t kBlock = 32;
    const int64_t rows = t.images * t.out[0] * t.out[1], wanted = 2 * num_threads();
    if (rows > 0 && rows < wanted && t.channels > kBlock) {
        const int64_t channels = t.channels * rows / wanted;
        s.channels = std::max(kBlock, (channels + kBlock - 1) / kBlock * kBlock);
        s.blocks = (s.pixel + s.channels - 1) / s.channels;
    }
    return s;
}

size_t element_size(IntType type) { return type == IntType::s32 ? 4 : 1; }

template <class Args, class Fn>
void run(const PoolTensor& t, const Args& args, Fn kernel, size_t scratch_element) {
    const PoolShape& s = args.shape;
    const int64_t rows = t.images * s.blocks * t.out[0] * t.out[1];
    const int64_t plane = t.in[0] * t.in[1] * t.in[2] * s.channels;
    const int64_t work = std::max(plane / std::max<int64_t>(t.out[0] * t.out[1], 1), t.out[2] * s.channels);
    const int64_t outputs = t.images * t.channels * t.out[0] * t.out[1] * t.out[2];
    prepare_output(t.y, static_cast<size_t>(outputs) * element_size(t.type));
    over_rows(rows, work, static_cast<size_t>(args.scratch()) * scratch_element,
              [&](int64_t begin, int64_t end, void* scratch) { kernel(args, begin, end, scratch); });
}

void average(const PoolTensor& t, std::array<Axis, 3>& axes, const AverageRule& rule) {
    AveragePoolArgs args;
    args.x = t.x;
    args.y = t.y;
    args.type = t.type;
    args.shape = shape_of(t, axes);
    args.averaging = rule.averaging;
    args.divisor = rule.divisor;
    args.scale = rule.scale;
    args.zero_point = rule.zero_point;
    args.qmin = rule.qmin;
    args.qmax = rule.qmax;
    run(t, args, kernels().average_pool, sizeof(int32_t));
}

}  // namespace

void max_pool(const PoolTensor& t, const PoolWindows& w) {
    const auto axis = [&](size_t d) {
        return sliding(t.in[d], t.out[d], w.kernel[d], w.stride[d], w.padding[d], w.dilation[d], false);
    };
    std::array<Axis, 3> axes{axis(0), axis(1), axis(2)};
    MaxPoolArgs args;
    args.x = t.x;
    args.y = t.y;
    args.type = t.type;
    args.shape = shape_of(t, axes);
    run(t, args, kernels().max_pool, element_size(t.type));
}

void average_pool(const PoolTensor& t, const PoolWindows& w, const AverageRule& rule) {
    const auto axis = [&](size_t d) {
        return sliding(t.in[d], t.out[d], w.kernel[d], w.stride[d], w.padding[d], 1, rule.count_include_pad);
    };
    std::array<Axis, 3> axes{axis(0), axis(1), axis(2)};
    average(t, axes, rule);
}

void adaptive_average_pool(const PoolTensor& t, const AverageRule& rule) {
    const auto axis = [&](size_t d) { return dividing(t.in[d], t.out[d]); };
    std::array<Axis, 3> axes{axis(0), axis(1), axis(2)};
    average(t, axes, rule);
}

}  // namespace zeropoint
