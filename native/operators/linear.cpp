#include "operators/linear.h"

#include "cpu/machine.h"
#include "cpu/memory.h"
#include "cpu/threads.h"
#include "kernels/registry.h"
#include "operators/float_stage.h"
#include "operators/fused_output.h"
#include "operators/kept_fold.h"
#include "operators/scratch.h"

#include <algorithm>
#include <atomic>

namespace zeropoint {
namespace {

struct OperandMemory;

// What the operand memory of a thread holds: neighbouring tasks often share a strip.
struct Prepared {
    uint64_t run = 0;
    int64_t strip = -1;
};
thread_local Prepared t_prepared;
std::atomic<uint64_t> g_runs{0};

// Rows of a strip: as many as their operand leaves in L2, and equal strips that the threads can share.
constexpr int64_t kLeast = 24, kStep = 6, kShared = 96;
int64_t strip_rows(int64_t rows, int64_t row_bytes) {
    const auto up = [](int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; };
    const int64_t most = std::max(kLeast, machine().l2_share() / std::max<int64_t>(1, row_bytes) / kStep * kStep);
    int64_t strips = (rows + std::min(most, kGemmRows) - 1) / std::min(most, kGemmRows);
    if (const int64_t shared = up(strips, 4 * num_threads()); strips > 1 && rows / shared >= kShared) strips = shared;
    return std::min(kGemmRows, up((rows + strips - 1) / strips, kStep));
}

// Elements from row to row of the operand. The rows of a tile are read side by side: a distance of 4096 bytes would
// put them all into the same few places of the L1 cache.
int64_t operand_stride(int64_t inputs, int64_t size) {
    constexpr int64_t kPage = 1024, kAway = 64;
    return inputs * size % kPage == 0 ? inputs + kAway / size : inputs;
}

}  // namespace

LinearPlan::LinearPlan(const WeightTensor& w, int64_t outputs, int64_t inputs)
    : LinearPlan(w, outputs, inputs, kernels().gemm()) {}

LinearPlan::LinearPlan(const WeightTensor& w, int64_t outputs, int64_t inputs, const GemmKernel& kernel)
    : kernel_(kernel),
      inputs_(inputs) {
    pack(w, outputs, inputs);
}

void LinearPlan::pack(const WeightTensor& w, int64_t outputs, int64_t inputs) {
    static const std::vector<std::vector<int64_t>> kOneTap{{0}};
    require_valid("linear", w, outputs);
    inputs_ = inputs;
    folds_.clear();
    pack_weights(kernel_, w, 0, outputs, 1, inputs, kOneTap, weights_);
}

double LinearPlan::operand_bytes(int64_t inputs, int64_t rows) {
    constexpr double kElement = 2,
                     kBetween = 128;  // bytes: of an element at most, and from the end of a row to the next
    const double row = static_cast<double>(inputs) * kElement + kBetween;
    const double most = std::max(static_cast<double>(kLeast) * row,
                                 static_cast<double>(machine().l2_share()) + static_cast<double>(kGemmRows) * kBetween);
    return std::min(most, (static_cast<double>(rows) + static_cast<double>(kStep)) * row);
}

int64_t LinearPlan::bytes_read_again(int64_t bytes, int64_t rows) {
    // One stream, which CPUs fetch ahead: so many bytes of it take as long as one that another core has written. (Zen
    // 4: 153 KB of weights 2 us, 94 KB of activations 10 us.)
    constexpr int64_t kStream = 4;
    return (bytes - bytes * std::min(rows, kShared) / kShared) / kStream;
}

void LinearPlan::run(const MatmulInput& x, int64_t rows, int64_t x_stride, const MatmulOutput& y) const {
    require_valid("linear", x, y, weights_.n);
    if (rows == 0 || weights_.n == 0) return;
    const Activation activation = activation_of(x);
    const int64_t size = kernel_.operand_size(), n = weights_.n;
    // A shifted operand of unsigned activations is the input itself, where no kernel reads beyond it.
    const bool direct =
        kernel_.operand == Operand::shifted && !activation.is_signed && inputs_ % kernel_.layout.multiple == 0;

    const int64_t strip = strip_rows(rows, inputs_ * size), tap = 0;
    const int64_t stride = direct ? x_stride : operand_stride(inputs_, size);
    const Tiling t = tiling((rows + strip - 1) / strip, std::min(strip, rows) * n * inputs_, weights_.panel_count());
    GemmArgs shared;
    shared.row_step = stride;
    shared.taps = &tap;
    shared.tap_count = 1;
    shared.channels = inputs_;
    shared.panels = reinterpret_cast<const int8_t*>(weights_.panels.data());
    shared.n = n;
    shared.w_zero_point = weights_.zero_point.empty() ? nullptr : weights_.zero_point.data();
    shared.w_sums = weights_.sums.data();
    shared.x_zero_point = activation.shifted_zero_point();
    shared.y = y.y;
    shared.epilogue = kept_fold(folds_, kernel_.operand, weights_, activation, y);
    prepare_output(y.y, static_cast<size_t>(rows * n) * (y.type == OutputType::f32 ? 4 : 1));

    const uint64_t run = 1 + g_runs.fetch_add(1, std::memory_order_relaxed);
    parallel_for(t.tasks(), t.grain, [&](int64_t begin, int64_t end) {
        GemmArgs a = shared;
        int64_t row_offset[kGemmRows], y_offset[kGemmRows];
        a.rows = row_offset;
        a.y_rows = y_offset;
        uint8_t* memory =
            direct ? nullptr : scratch_of<OperandMemory>(static_cast<size_t>((strip * stride + kOperandSlack) * size));
        for (int64_t task = begin; task < end; ++task) {
            const int64_t s = task / t.chunks, chunk = task % t.chunks, first = s * strip;
            a.m = a.run = std::min(strip, rows - first);
            const uint8_t* from = static_cast<const uint8_t*>(x.x) + first * x_stride;
            if (direct) {
                a.x = from;
            } else {
                a.x = memory;
                if (t_prepared.run != run || t_prepared.strip != s) {
                    if (x_stride == stride)
                        kernel_.convert(from, (a.m - 1) * stride + inputs_, activation, memory);
                    else
                        for (int64_t m = 0; m < a.m; ++m)
                            kernel_.convert(from + m * x_stride, inputs_, activation, memory + m * stride * size);
                    t_prepared = {run, s};
                }
            }
            for (int64_t m = 0, at = 0, to = first * n; m < a.m; ++m, at += stride, to += n) {
                row_offset[m] = at;
                y_offset[m] = to;
            }
            const int64_t panel = chunk * t.panels_per_chunk;
            const int64_t last = std::min(panel + t.panels_per_chunk, weights_.panel_count());
            if (y.function != nullptr)
                multiply_through(kernel_, y, a, panel, last);
            else
                multiply_part(y, a.m, panel * kPanel, std::min(last * kPanel, n) - panel * kPanel, a,
                              [&] { kernel_.multiply(a, panel, last); });
        }
    });
}

}  // namespace zeropoint
