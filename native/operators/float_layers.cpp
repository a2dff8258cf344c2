#include "operators/float_layers.h"

#include "cpu/machine.h"
#include "cpu/memory.h"
#include "cpu/threads.h"
#include "kernels/registry.h"
#include "operators/scratch.h"

#include <algorithm>

namespace zeropoint {
namespace {

constexpr int64_t kStrip = 96;   // rows that are gathered together
constexpr int64_t kDepth = 256;  // and of these so many elements: what is multiplied stays in the cache
constexpr double kMacs = kWorthFloatMacs;
constexpr int64_t kSharesOfThread = 4;  // tasks, so that the threads end together

struct GatherMemory;
struct ResultMemory;
struct TapMemory;

template <class Tag>
float* float_scratch(int64_t count) {
    return reinterpret_cast<float*>(scratch_of<Tag>(static_cast<size_t>(count) * sizeof(float)));
}

bool are_neighbours(const std::vector<AxisPhase::Tap>& taps) {
    for (size_t i = 1; i < taps.size(); ++i)
        if (taps[i].offset != taps[i - 1].offset + 1) return false;
    return true;
}

bool reads_its_own_place(const AxisPhase& p) {
    return p.step == 1 && p.in_step == 1 && p.taps.size() == 1 && p.taps[0].offset == 0;
}

}  // namespace

// One call of run.
struct FloatConvLayer::Call {
    const float* x;
    float* y;
    int64_t images;
    Size3 in, out, counts;  // counts: outputs of the phase
};

FloatConvLayer::FloatConvLayer(const float* weight, const ConvShape& shape, const float* bias)
    : shape_((require_valid(shape), shape)),
      channels_(shape.in_channels / shape.groups),
      outputs_(shape.out_channels / shape.groups),
      panel_count_((outputs_ + kFloatPanel - 1) / kFloatPanel),
      is_depthwise_(shape.is_depthwise()) {
    const int64_t width = is_depthwise_ ? 1 : panel_count_ * kFloatPanel;
    bias_.assign(static_cast<size_t>(shape.groups * width), 0.0f);
    for (int64_t n = 0; bias != nullptr && n < shape.out_channels; ++n)
        bias_[static_cast<size_t>(n / outputs_ * width + n % outputs_)] = bias[n];
    std::array<std::vector<AxisPhase>, 3> axes{phases_of(shape, 0), phases_of(shape, 1), phases_of(shape, 2)};
    for (const AxisPhase& d : axes[0])
        for (const AxisPhase& h : axes[1])
            for (const AxisPhase& w : axes[2]) add_phase(weight, {d, h, w});
}

void FloatConvLayer::add_phase(const float* weight, const std::array<AxisPhase, 3>& axes) {
    Phase phase;
    phase.axes = axes;
    phase.direct = std::all_of(axes.begin(), axes.end(), reads_its_own_place);
    phase.scattered = std::any_of(axes.begin(), axes.end(), [](const AxisPhase& p) { return p.step > 1; });
    const auto& along = axes[2].taps;
    const bool together = shape_.groups == 1 && are_neighbours(along);
    std::vector<int64_t>& positions = phase.positions;
    for (const auto& d : axes[0].taps)
        for (const auto& h : axes[1].taps)
            for (const auto& w : along) {
                if (!together || &w == &along.front())
                    phase.runs.push_back({d.offset, h.offset, w.offset,
                                          together ? static_cast<int64_t>(along.size()) : 1,
                                          static_cast<int64_t>(positions.size()) * channels_});
                positions.push_back((d.index * shape_.kernel[1] + h.index) * shape_.kernel[2] + w.index);
            }
    const int64_t taps = static_cast<int64_t>(positions.size());
    const int64_t all = shape_.kernel[0] * shape_.kernel[1] * shape_.kernel[2];
    phase.depth = taps * channels_;
    const int64_t size =
        is_depthwise_ ? taps * shape_.groups : shape_.groups * panel_count_ * phase.depth * kFloatPanel;
    phase.panels = AlignedBytes(static_cast<size_t>(size) * sizeof(float));
    float* const packed = reinterpret_cast<float*>(phase.panels.data());
    for (int64_t n = 0; n < shape_.out_channels; ++n) {
        const int64_t column = n % outputs_;
        float* const to = packed + (n / outputs_ * panel_count_ + column / kFloatPanel) * phase.depth * kFloatPanel;
        for (int64_t t = 0; t < taps; ++t) {
            const float* from = weight + (n * all + positions[static_cast<size_t>(t)]) * channels_;
            if (is_depthwise_) packed[t * shape_.groups + n] = *from;
            for (int64_t c = 0; c < channels_ && !is_depthwise_; ++c)
                to[(t * channels_ + c) * kFloatPanel + column % kFloatPanel] = from[c];
        }
    }
    phases_.push_back(std::move(phase));
}

double FloatConvLayer::scratch_bytes(const ConvShape& shape) {
    const int64_t panels = (shape.out_channels / shape.groups + kFloatPanel - 1) / kFloatPanel;
    const int64_t taps = shape.kernel[0] * shape.kernel[1] * shape.kernel[2];
    const double widest = static_cast<double>(shape.phases() > 1 ? panels * kFloatPanel : kFloatPanel);
    return static_cast<double>(sizeof(float) * kStrip) * (static_cast<double>(kDepth) + widest) +
           static_cast<double>(2 * sizeof(int64_t)) * static_cast<double>(taps);
}

// `count` elements from k on of row `row` of a phase.
void FloatConvLayer::gather(const Call& call, const Phase& phase, int64_t group, int64_t row, int64_t k, int64_t count,
                            float* to) const {
    Size3 at{};
    for (size_t d = 3; d-- > 0; row /= call.counts[d]) at[d] = row % call.counts[d] * phase.axes[d].in_step;
    const Size3& in = call.in;
    const int64_t pixel = shape_.in_channels;
    // Runs are in the order of k, and all of the same length.
    const size_t first = static_cast<size_t>(k / (phase.runs[0].taps * channels_));
    for (size_t i = first; i < phase.runs.size() && phase.runs[i].k < k + count; ++i) {
        const Run& run = phase.runs[i];
        const int64_t depth = at[0] + run.depth, height = at[1] + run.height, width = at[2] + run.width;
        const int64_t begin = std::max<int64_t>(k - run.k, 0), end = std::min(k + count - run.k, run.taps * channels_);
        float* const put = to + run.k - k;
        int64_t low = end, high = end;  // of the elements that are not padding
        if (depth >= 0 && depth < in[0] && height >= 0 && height < in[1]) {
            low = std::clamp(-width * channels_, begin, end);
            high = std::clamp((in[2] - width) * channels_, low, end);
        }
        std::fill(put + begin, put + low, 0.0f);
        if (high > low) {
            const float* from =
                call.x + (((row * in[0] + depth) * in[1] + height) * in[2] + width) * pixel + group * channels_;
            std::copy(from + low, from + high, put + low);
        }
        std::fill(put + high, put + end, 0.0f);
    }
}

// The panels [begin, end) of a group for some rows.
void FloatConvLayer::multiply(const Call& call, const Phase& phase, int64_t group, int64_t first_row, int64_t rows,
                              int64_t begin, int64_t end) const {
    const FloatGemmFn kernel = kernels().float_gemm;
    const int64_t whole =
        phase.scattered ? begin : std::min(end, outputs_ / kFloatPanel);  // end of what y has room for
    const int64_t left = end - whole, width = left * kFloatPanel, n = shape_.out_channels;
    float* const gathered = float_scratch<GatherMemory>(kStrip * kDepth);
    float* const results = float_scratch<ResultMemory>(kStrip * width);
    FloatGemmArgs a;
    a.rows = rows;
    a.panel_stride = phase.depth * kFloatPanel;
    a.bias = bias_.data() + group * panel_count_ * kFloatPanel;
    const float* panels = reinterpret_cast<const float*>(phase.panels.data()) + group * panel_count_ * a.panel_stride;
    float* const y = call.y + first_row * n + group * outputs_;
    for (int64_t k = 0; k == 0 || k < phase.depth; k += kDepth) {
        a.depth = std::min(kDepth, phase.depth - k);
        a.resume = k > 0;
        a.panels = panels + k * kFloatPanel;
        if (phase.direct) {
            a.x = call.x + first_row * shape_.in_channels + group * channels_ + k;
            a.x_stride = shape_.in_channels;
        } else {
            for (int64_t i = 0; i < rows && a.depth > 0; ++i)
                gather(call, phase, group, first_row + i, k, a.depth, gathered + i * a.depth);
            a.x = gathered;
            a.x_stride = a.depth;
        }
        a.y = y;
        a.y_stride = n;
        if (whole > begin) kernel(a, begin, whole);
        if (left == 0) continue;
        FloatGemmArgs rest = a;  // kernels write whole panels
        rest.panels += whole * a.panel_stride;
        rest.bias += whole * kFloatPanel;
        rest.y = results;
        rest.y_stride = width;
        kernel(rest, 0, left);
    }
    if (left == 0) return;
    const int64_t columns = std::min(end * kFloatPanel, outputs_) - whole * kFloatPanel;
    for (int64_t i = 0; i < rows; ++i) {
        float* to = y + i * n;
        if (phase.scattered) {
            int64_t row = first_row + i, place = 0, step = 1;
            for (size_t d = 3; d-- > 0;) {
                place += (phase.axes[d].first + row % call.counts[d] * phase.axes[d].step) * step;
                row /= call.counts[d];
                step *= call.out[d];
            }
            to = call.y + (row * step + place) * n + group * outputs_;
        }
        std::copy_n(results + i * width, columns, to + whole * kFloatPanel);
    }
}

// Lines of the output; in each, neighbours that read no padding along the width are taken together.
void FloatConvLayer::run_depthwise(const Call& call, const Phase& phase) const {
    const FloatDepthwiseFn kernel = kernels().float_depthwise;
    const int64_t n = shape_.groups, taps = static_cast<int64_t>(phase.runs.size());
    const AxisPhase& along = phase.axes[2];
    const Size3 &in = call.in, &counts = call.counts;
    const int64_t lines = call.images * counts[0] * counts[1];
    // Outputs from `inside` on, up to `outside`, read no padding along the width.
    int64_t inside = 0, outside = counts[2];
    for (const AxisPhase::Tap& tap : along.taps) {
        inside = std::max(inside, (along.in_step - 1 - tap.offset) / along.in_step);
        const int64_t room = in[2] - 1 - tap.offset;
        outside = std::min(outside, room < 0 ? 0 : room / along.in_step + 1);
    }
    inside = std::min(std::max<int64_t>(inside, 0), counts[2]);
    outside = std::max(outside, inside);
    const double macs = static_cast<double>(counts[2]) * static_cast<double>(n) * static_cast<double>(taps + 1);
    parallel_for(lines, std::max<int64_t>(1, static_cast<int64_t>(kMacs / macs)), [&](int64_t begin, int64_t end) {
        int64_t* const x_taps =
            reinterpret_cast<int64_t*>(scratch_of<TapMemory>(static_cast<size_t>(2 * taps) * sizeof(int64_t)));
        int64_t* const w_taps = x_taps + taps;
        for (int64_t line = begin; line < end; ++line) {
            const int64_t image = line / counts[1] / counts[0];
            const int64_t od = line / counts[1] % counts[0], oh = line % counts[1];
            FloatDepthwiseArgs a;
            a.x_step = along.in_step * n;
            a.w = reinterpret_cast<const float*>(phase.panels.data());
            a.x_taps = x_taps;
            a.w_taps = w_taps;
            a.channels = n;
            a.bias = bias_.data();
            a.y_step = along.step * n;
            a.y = call.y + (((image * call.out[0] + phase.axes[0].first + od * phase.axes[0].step) * call.out[1] +
                             phase.axes[1].first + oh * phase.axes[1].step) *
                                call.out[2] +
                            along.first) *
                               n;
            const auto outputs = [&](int64_t first, int64_t last) {
                if (first >= last) return;
                a.taps = 0;
                for (int64_t t = 0; t < taps; ++t) {
                    const Run& run = phase.runs[static_cast<size_t>(t)];
                    const int64_t depth = od * phase.axes[0].in_step + run.depth,
                                  height = oh * phase.axes[1].in_step + run.height,
                                  width = first * along.in_step + run.width;
                    if (depth < 0 || depth >= in[0] || height < 0 || height >= in[1] || width < 0 || width >= in[2])
                        continue;
                    x_taps[a.taps] = (((image * in[0] + depth) * in[1] + height) * in[2] + width) * n;
                    w_taps[a.taps++] = t * n;
                }
                FloatDepthwiseArgs part = a;
                part.x = call.x;
                part.y = a.y + first * a.y_step;
                kernel(part, 0, last - first);
            };
            for (int64_t i = 0; i < inside; ++i) outputs(i, i + 1);
            outputs(inside, outside);
            for (int64_t i = outside; i < counts[2]; ++i) outputs(i, i + 1);
        }
    });
}

void FloatConvLayer::run(const float* x, int64_t images, const Size3& in, float* y) const {
    Call call{x, y, images, in, shape_.output_size(in), {}};
    prepare_output(y, static_cast<size_t>(images * call.out[0] * call.out[1] * call.out[2] * shape_.out_channels) *
                          sizeof(float));
    for (const Phase& phase : phases_) {
        for (size_t d = 0; d < 3; ++d) call.counts[d] = phase.axes[d].count(call.out[d]);
        const int64_t rows = images * call.counts[0] * call.counts[1] * call.counts[2];
        if (rows == 0) continue;
        if (is_depthwise_) {
            run_depthwise(call, phase);
            continue;
        }
        const int64_t strips = (rows + kStrip - 1) / kStrip, units = strips * shape_.groups;
        const int64_t wanted = num_threads() == 1 ? 1 : kSharesOfThread * num_threads();
        const int64_t chunks = std::clamp<int64_t>((wanted + units - 1) / units, 1, panel_count_);
        const int64_t each = (panel_count_ + chunks - 1) / chunks;
        const double macs = static_cast<double>(std::min(rows, kStrip)) * static_cast<double>(each * kFloatPanel) *
                            static_cast<double>(phase.depth + 1);
        const int64_t grain = std::max<int64_t>(1, static_cast<int64_t>(kMacs / macs));
        parallel_for(units * chunks, grain, [&](int64_t begin, int64_t end) {
            for (int64_t task = begin; task < end; ++task) {
                const int64_t chunk = task % chunks, group = task / chunks % shape_.groups;
                const int64_t row = task / chunks / shape_.groups * kStrip;
                const int64_t first = chunk * each, last = std::min(first + each, panel_count_);
                if (first < last) multiply(call, phase, group, row, std::min(kStrip, rows - row), first, last);
            }
        });
    }
}

}  // namespace zeropoint
