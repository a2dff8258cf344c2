#include "operators/depthwise.h"

#include "cpu/memory.h"
#include "cpu/threads.h"
#include "kernels/registry.h"
#include "operators/fused_output.h"
#include "operators/cached_epilogue.h"
#include "operators/scratch.h"
#include "operators/convolution_strips.h"

#include <algorithm>
#include <cstring>

namespace zeropoint {
namespace {

struct OperandMemory;

constexpr int64_t kElement = 2;  // bytes of an operand element

struct ZeroLine;
struct LinePointers;

int32_t weight_of(const WeightTensor& w, int64_t c, int64_t at) {
    const uint8_t bits = static_cast<const uint8_t*>(w.data)[at];
    return (w.type == IntType::s8 ? static_cast<int8_t>(bits) : bits) - w.zero_point_of(c);
}

// Lines of a strip that is read in place: an even number, as many as L2 holds with what they make, and several strips
// for each thread.
int64_t in_place_lines(int64_t planes, int64_t lines, int64_t line_bytes) {
    constexpr int64_t kBytes = 256 << 10, kStripsPerThread = 4;
    const int64_t strips = (num_threads() * kStripsPerThread + planes - 1) / planes;
    const int64_t most = std::min(kBytes / std::max<int64_t>(1, line_bytes), (lines + strips - 1) / strips);
    return std::min(lines, std::max<int64_t>(2, (most + 1) / 2 * 2));
}

}  // namespace

DepthwisePlan::DepthwisePlan(const WeightTensor& w, const ConvShape& shape, const DepthwiseKernel& kernel)
    : shape_(shape),
      kernel_(kernel) {
    sizes_.n = shape.out_channels;
    sizes_.sums.assign(static_cast<size_t>(sizes_.panel_count() * kPanel), 0);
    for (const AxisPhase& depth : phases_of(shape, 0))
        for (const AxisPhase& height : phases_of(shape, 1))
            for (const AxisPhase& width : phases_of(shape, 2)) {
                std::vector<int64_t> taps;
                for (const AxisPhase::Tap& d : depth.taps)
                    for (const AxisPhase::Tap& h : height.taps)
                        for (const AxisPhase::Tap& x : width.taps)
                            taps.push_back((d.index * shape.kernel[1] + h.index) * shape.kernel[2] + x.index);
                phases_.push_back({{depth, height, width}, pack(w, taps)});
            }
    in_place_ = pack_in_place(w);
}

DepthwisePlan::InPlace DepthwisePlan::pack_in_place(const WeightTensor& w) const {
    InPlace made;
    const InPlaceKernel* const kernel = kernel_.in_place;
    const ConvShape& s = shape_;
    const auto regular = [&](size_t d) { return s.dilation[d] == 1 || s.kernel[d] == 1; };
    made.shape = {s.kernel[1], s.kernel[2], s.stride[1], s.stride[2]};
    if (kernel == nullptr || s.transposed || s.kernel[0] != 1 || s.stride[0] != 1 || s.padding[0] != 0 || !regular(1) ||
        !regular(2) || !kernel->takes(made.shape))
        return made;
    const int64_t channels = s.out_channels, taps = s.kernel[1] * s.kernel[2];
    std::vector<int8_t> weights(static_cast<size_t>(channels * taps));
    made.sizes.n = channels;
    made.sizes.sums.assign(sizes_.sums.size(), 0);
    for (int64_t c = 0; c < channels; ++c)
        for (int64_t t = 0; t < taps; ++t) {
            const int32_t value = weight_of(w, c, c * taps + t);
            if (value < -128 || value > 127) return made;
            weights[static_cast<size_t>(c * taps + t)] = static_cast<int8_t>(value);
            made.sizes.sums[static_cast<size_t>(c)] += value;
        }
    made.weights = AlignedBytes(kernel->packed_bytes(made.shape, channels));
    kernel->pack(made.shape, channels, weights.data(), made.weights.data());
    return made;
}

AlignedBytes DepthwisePlan::pack(const WeightTensor& w, const std::vector<int64_t>& taps) const {
    const int64_t stored_taps = shape_.kernel[0] * shape_.kernel[1] * shape_.kernel[2];
    const int64_t count = static_cast<int64_t>(taps.size()), pairs = (count + 1) / 2;
    AlignedBytes packed(static_cast<size_t>(sizes_.panel_count() * pairs * kPanel * 2) * sizeof(int16_t));
    int16_t* to = reinterpret_cast<int16_t*>(packed.data());
    for (int64_t c = 0; c < sizes_.n; ++c)
        for (int64_t t = 0; t < count; ++t) {
            const int64_t at = c * stored_taps + taps[static_cast<size_t>(t)];
            to[((c / kPanel * pairs + t / 2) * kPanel + c % kPanel) * 2 + t % 2] =
                static_cast<int16_t>(weight_of(w, c, at));
        }
    return packed;
}

// A phase over inputs of a given size.
struct DepthwisePlan::Task {
    const Phase* phase;
    Strips strips;
    Tiling tiling;
    int64_t first_task;

    // One strip, whose operand is prepared.
    void multiply(const DepthwisePlan& plan, const Strip& strip, const uint8_t* operand, const int64_t* taps,
                  const Size3& out, const MatmulOutput& y, const Epilogue& epilogue) const {
        const int64_t channels = plan.sizes_.n;
        const int64_t pixels = strip.lines * strips.counts[2], parts = (pixels + kGemmRows - 1) / kGemmRows;
        const int64_t part = std::min(kGemmRows, ((pixels + parts - 1) / parts + 11) / 12 * 12);
        int64_t rows[kGemmRows], y_rows[kGemmRows];
        DepthwiseArgs a;
        a.x = reinterpret_cast<const int16_t*>(operand);
        a.rows = rows;
        a.taps = taps + strips.first_tap;
        a.tap_count = static_cast<int64_t>(strips.tap_count);
        a.channels = channels;
        a.w = reinterpret_cast<const int16_t*>(phase->weights.data());
        a.y = y.y;
        a.y_rows = y_rows;
        a.epilogue = epilogue;
        for (int64_t first = 0; first < pixels; first += part) {
            a.m = std::min(part, pixels - first);
            strips.rows(strip, first, a.m, channels, out, channels, rows, y_rows);
            multiply_part(y, a.m, 0, channels, a, [&] { plan.kernel_.multiply(a, 0, plan.sizes_.panel_count()); });
        }
    }
};

void DepthwisePlan::run(const MatmulInput& x, int64_t images, const Size3& in, const MatmulOutput& y,
                        bool channels_first) const {
    // What is combined with another tensor is made in memory of its own, row by row.
    if (is_in_place() && !channels_first && y.then == nullptr) return run_in_place(x, images, in, y);
    const Size3 out = shape_.output_size(in);
    thread_local std::vector<Task> t_tasks;
    thread_local std::vector<int64_t> t_taps;
    t_tasks.clear();
    t_taps.clear();
    int64_t tasks = 0, elements = 0, grain = 1;
    for (const Phase& phase : phases_) {
        Strips strips(phase.axes, out);
        const int64_t planes = strips.planes(images);
        if (planes * strips.counts[1] * strips.counts[2] == 0) continue;
        const int64_t line = strips.width.size * phase.axes[1].in_step * shape_.in_channels * kElement;
        strips.lines = depthwise_lines(planes, strips.counts[1], line);
        strips.place(shape_.in_channels, false, t_taps);
        const int64_t macs = sizes_.n * static_cast<int64_t>(strips.tap_count) * strips.pixels();
        t_tasks.push_back({&phase, strips, tiling(planes * strips.per_plane, macs, 1), tasks});
        tasks += t_tasks.back().tiling.tasks();
        grain = std::max(grain, t_tasks.back().tiling.grain);
        elements = std::max(elements, strips.elements);
    }
    const Activation activation = activation_of(x);
    const Epilogue epilogue =
        fold(Operand::centered, sizes_, activation, y, 0, scratch_of<FoldMemory>(fold_bytes(sizes_)));
    prepare_output(y.y, static_cast<size_t>(images * out[0] * out[1] * out[2] * shape_.out_channels) *
                            (y.type == OutputType::f32 ? 4 : 1));
    const StripInput input{static_cast<const uint8_t*>(x.x),
                           in,
                           shape_.in_channels,
                           channels_first,
                           activation,
                           kernel_.convert,
                           kElement,
                           0};
    const std::vector<Task>& all = t_tasks;
    const int64_t* taps = t_taps.data();
    parallel_for(tasks, grain, [&](int64_t begin, int64_t end) {
        uint8_t* memory = scratch_of<OperandMemory>(static_cast<size_t>((elements + kOperandSlack) * kElement));
        size_t number = 0;
        for (int64_t i = begin; i < end; ++i) {
            while (i >= all[number].first_task + all[number].tiling.tasks()) ++number;
            const Task& task = all[number];
            const Strip strip = task.strips.at(i - task.first_task);
            input.prepare(task.strips, strip, memory);
            task.multiply(*this, strip, memory, taps, out, y, epilogue);
        }
    });
}

void DepthwisePlan::run_in_place(const MatmulInput& x, int64_t images, const Size3& in, const MatmulOutput& y) const {
    const Size3 out = shape_.output_size(in);
    const InPlaceShape& shape = in_place_.shape;
    const int64_t channels = shape_.in_channels, planes = images * in[0], line_bytes = in[2] * channels;
    const int64_t lines = in_place_lines(planes, out[1], (shape.stride_h + 1) * line_bytes);
    const int64_t strips = (out[1] + lines - 1) / lines;
    const int64_t units = (channels + kInPlaceUnit - 1) / kInPlaceUnit;
    // A multiplication takes longer here than in a matrix product, by this factor.
    constexpr int64_t kCost = 3;
    const int64_t macs = kCost * channels * shape.rows * shape.columns * lines * out[2];
    const Tiling t = tiling(planes * strips, macs, units);

    InPlaceArgs shared;
    shared.shape = shape;
    shared.width = in[2];
    shared.left = shape_.padding[2];
    shared.channels = channels;
    shared.activation = activation_of(x);
    shared.w = in_place_.weights.data();
    shared.y = y.y;
    shared.out_width = out[2];
    shared.epilogue = kept_fold(folds_, Operand::shifted, in_place_.sizes, shared.activation, y);
    const LookupFn lookup = kernels().lookup;
    prepare_output(y.y, static_cast<size_t>(planes * out[1] * out[2] * channels) * (y.type == OutputType::f32 ? 4 : 1));
    // What lies above and below the image.
    uint8_t* const zeros = scratch_of<ZeroLine>(static_cast<size_t>(line_bytes));
    std::memset(zeros, shared.activation.zero_point, static_cast<size_t>(line_bytes));

    parallel_for(t.tasks(), t.grain, [&](int64_t from, int64_t to) {
        InPlaceArgs a = shared;
        const int64_t most = (lines - 1) * shape.stride_h + shape.rows;
        const auto pointers = reinterpret_cast<const uint8_t**>(
            scratch_of<LinePointers>(static_cast<size_t>(most) * sizeof(const uint8_t*)));
        a.lines = pointers;
        for (int64_t task = from; task < to; ++task) {
            const int64_t strip = task / t.chunks, chunk = task % t.chunks;
            const int64_t plane = strip / strips, first = strip % strips * lines;
            a.out_lines = std::min(lines, out[1] - first);
            for (int64_t i = 0; i < (a.out_lines - 1) * shape.stride_h + shape.rows; ++i) {
                const int64_t line = first * shape.stride_h - shape_.padding[1] + i;
                pointers[i] = line < 0 || line >= in[1]
                                  ? zeros
                                  : static_cast<const uint8_t*>(x.x) + (plane * in[1] + line) * line_bytes;
            }
            a.out = (plane * out[1] + first) * out[2] * channels;
            const int64_t unit = chunk * t.panels_per_chunk, past = std::min(unit + t.panels_per_chunk, units);
            kernel_.in_place->multiply(a, unit, past);
            if (y.table == nullptr) continue;
            const int64_t pixels = a.out_lines * out[2], begin = unit * kInPlaceUnit,
                          count = std::min(past * kInPlaceUnit, channels) - begin;
            uint8_t* const made = static_cast<uint8_t*>(y.y) + a.out + begin;
            const int64_t runs = count == channels ? 1 : pixels, run = count == channels ? pixels * channels : count;
            for (int64_t i = 0; i < runs; ++i) lookup({made + i * channels, y.table, made + i * channels}, 0, run);
        }
    });
}

}  // namespace zeropoint
