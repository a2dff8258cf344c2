#include "operators/linear.h"

#include "cpu/machine.h"
#include "cpu/memory.h"
#include "cpu/threads.h"
#include "kernels/registry.h"
#include "operators/float_stage.h"
#include "operators/fused_output.h"
#include "operators/cached_epilogue.h"
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

// What all tasks of a call share.
class LinearPlan::Call {
public:
    Call(const LinearPlan& plan, const MatmulInput& x, int64_t rows, int64_t x_stride, const MatmulOutput& y)
        : plan_(plan),
          y_(y),
          activation_(activation_of(x)),
          x_(static_cast<const uint8_t*>(x.x)),
          rows_(rows),
          x_stride_(x_stride),
          size_(plan.kernel_.operand_size()),
          // A shifted operand of unsigned activations is the input itself, where no kernel reads beyond it.
          direct_(plan.kernel_.operand == Operand::shifted && !activation_.is_signed &&
                  plan.inputs_ % plan.kernel_.layout.multiple == 0),
          strip_(strip_rows(rows, plan.inputs_ * size_)),
          stride_(direct_ ? x_stride : operand_stride(plan.inputs_, size_)),
          run_(1 + g_runs.fetch_add(1, std::memory_order_relaxed)) {
        const PackedWeights& w = plan.weights_;
        shared_.row_step = stride_;
        shared_.taps = &tap_;
        shared_.tap_count = 1;
        shared_.channels = plan.inputs_;
        shared_.panels = reinterpret_cast<const int8_t*>(w.panels.data());
        shared_.n = w.n;
        shared_.w_zero_point = w.zero_point.empty() ? nullptr : w.zero_point.data();
        shared_.w_sums = w.sums.data();
        shared_.x_zero_point = activation_.shifted_zero_point();
        shared_.y = y.y;
        shared_.epilogue = kept_fold(plan.folds_, plan.kernel_.operand, w, activation_, y);
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    int64_t strips() const { return (rows_ + strip_ - 1) / strip_; }
    int64_t strip() const { return strip_; }

    // The panels [begin, end) of strip s.
    void multiply(int64_t s, int64_t begin, int64_t end) const {
        const GemmKernel& kernel = plan_.kernel_;
        const int64_t inputs = plan_.inputs_, n = plan_.weights_.n, first = s * strip_;
        GemmArgs a = shared_;
        int64_t row_offset[kGemmRows], y_offset[kGemmRows];
        a.rows = row_offset;
        a.y_rows = y_offset;
        a.m = a.run = std::min(strip_, rows_ - first);
        const uint8_t* from = x_ + first * x_stride_;
        if (direct_) {
            a.x = from;
        } else {
            uint8_t* memory =
                scratch_of<OperandMemory>(static_cast<size_t>((strip_ * stride_ + kOperandSlack) * size_));
            a.x = memory;
            if (t_prepared.run != run_ || t_prepared.strip != s) {
                if (x_stride_ == stride_)
                    kernel.convert(from, (a.m - 1) * stride_ + inputs, activation_, memory);
                else
                    for (int64_t m = 0; m < a.m; ++m)
                        kernel.convert(from + m * x_stride_, inputs, activation_, memory + m * stride_ * size_);
                t_prepared = {run_, s};
            }
        }
        for (int64_t m = 0, at = 0, to = first * n; m < a.m; ++m, at += stride_, to += n) {
            row_offset[m] = at;
            y_offset[m] = to;
        }
        if (y_.function != nullptr)
            multiply_through(kernel, y_, a, begin, end);
        else
            multiply_part(y_, a.m, begin * kPanel, std::min(end * kPanel, n) - begin * kPanel, a,
                          [&] { kernel.multiply(a, begin, end); });
    }

private:
    const LinearPlan& plan_;
    const MatmulOutput& y_;
    const Activation activation_;
    const uint8_t* const x_;
    const int64_t rows_, x_stride_, size_;
    const bool direct_;
    const int64_t strip_, stride_;
    const uint64_t run_;
    const int64_t tap_ = 0;
    GemmArgs shared_;
};

void LinearPlan::run(const MatmulInput& x, int64_t rows, int64_t x_stride, const MatmulOutput& y) const {
    require_valid("linear", x, y, weights_.n);
    if (rows == 0 || weights_.n == 0) return;
    const Call call(*this, x, rows, x_stride, y);
    const int64_t n = weights_.n;
    const Tiling t = tiling(call.strips(), std::min(call.strip(), rows) * n * inputs_, weights_.panel_count());
    prepare_output(y.y, static_cast<size_t>(rows * n) * (y.type == OutputType::f32 ? 4 : 1));
    parallel_for(t.tasks(), t.grain, [&](int64_t begin, int64_t end) {
        for (int64_t task = begin; task < end; ++task) {
            const int64_t panel = task % t.chunks * t.panels_per_chunk;
            call.multiply(task / t.chunks, panel, std::min(panel + t.panels_per_chunk, weights_.panel_count()));
        }
    });
}

void LinearPlan::run_panels(const MatmulInput& x, int64_t rows, const MatmulOutput& y, int64_t begin,
                            int64_t end) const {
    require_valid("linear", x, y, weights_.n);
    if (rows == 0 || begin == end) return;
    const Call call(*this, x, rows, inputs_, y);
    for (int64_t s = 0; s < call.strips(); ++s) call.multiply(s, begin, end);
}

}  // namespace zeropoint
