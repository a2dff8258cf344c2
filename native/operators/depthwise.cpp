#include "operators/depthwise.h"

#include "cpu/memory.h"
#include "cpu/threads.h"
#include "operators/fused_binary.h"
#include "operators/scratch.h"
#include "operators/strips.h"

#include <algorithm>

namespace zeropoint {
namespace {

struct FoldMemory;
struct OperandMemory;

constexpr int64_t kElement = 2;  // bytes of an operand element

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
}

AlignedBytes DepthwisePlan::pack(const WeightTensor& w, const std::vector<int64_t>& taps) const {
    const int64_t stored_taps = shape_.kernel[0] * shape_.kernel[1] * shape_.kernel[2];
    const int64_t count = static_cast<int64_t>(taps.size()), pairs = (count + 1) / 2;
    AlignedBytes packed(static_cast<size_t>(sizes_.panel_count() * pairs * kPanel * 2) * sizeof(int16_t));
    int16_t* to = reinterpret_cast<int16_t*>(packed.data());
    for (int64_t c = 0; c < sizes_.n; ++c)
        for (int64_t t = 0; t < count; ++t) {
            const uint8_t bits = static_cast<const uint8_t*>(w.data)[c * stored_taps + taps[static_cast<size_t>(t)]];
            const int32_t value = w.type == IntType::s8 ? static_cast<int8_t>(bits) : bits;
            to[((c / kPanel * pairs + t / 2) * kPanel + c % kPanel) * 2 + t % 2] =
                static_cast<int16_t>(value - w.zero_point_of(c));
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

}  // namespace zeropoint
