#include "operators/recurrent.h"

#include "cpu/machine.h"
#include "cpu/memory.h"
#include "cpu/threads.h"
#include "kernels/registry.h"
#include "operators/recurrent_operand.h"
#include "operators/ranges.h"
#include "operators/scratch.h"
#include "operators/step_threads.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace zeropoint {
namespace {

struct GatheredMemory;
struct RunMemory;
struct StepMemory;

// Rows of the recurrent product that are multiplied together: a multiple of the tile heights 6, 12 and 16.
constexpr int64_t kRows = 96;

void require(bool ok, const char* what) {
    if (!ok) throw std::invalid_argument(std::string("recurrent: ") + what);
}

// Aligned pieces of one allocation.
class Pieces {
public:
    explicit Pieces(uint8_t* memory) : at_(memory) {}
    template <class T>
    T* take(int64_t count) {
        T* const piece = reinterpret_cast<T*>(at_);
        at_ += size<T>(count);
        return piece;
    }
    template <class T>
    static size_t size(int64_t count) {
        return (static_cast<size_t>(count) * sizeof(T) + 63) / 64 * 64;
    }

private:
    uint8_t* at_;
};

std::atomic<uint64_t> g_runs{0};

}  // namespace

// One direction of some rows of a sequence. Steps are counted as they are done: step 0 of the second direction is the
// last one.
class RecurrentRun {
public:
    RecurrentRun(const RecurrentLayer& layer, const RecurrentSequence& sequence, const SequenceRows& rows,
                 const QuantizedInput& input, int64_t direction, int64_t directions, int64_t threads)
        : layer_(layer),
          sequence_(sequence),
          rows_(rows),
          input_(input),
          direction_(direction),
          gates_(cell_gates(layer.cell())),
          hidden_(layer.hidden()),
          blocks_(layer.blocks()),
          width_(blocks_ * kCellBlock),
          columns_(width_ * gates_),
          batch_(rows.rows(0)),
          y_stride_(directions * hidden_),
          y_(sequence.y + direction * hidden_),
          operand_stride_(stride_of(width_)),
          run_(1 + g_runs.fetch_add(1, std::memory_order_relaxed)),
          blocks_per_part_(blocks_of_part(threads)),
          threads_((blocks_ + blocks_per_part_ - 1) / blocks_per_part_),
          parts_(threads_.parts()),
          groups_(static_cast<size_t>(parts_)),
          group_rows_(std::max(batch_, gate_bytes() / (columns_ * static_cast<int64_t>(sizeof(float))))) {}

    // Returns whether every hidden state that had to be quantized was finite.
    bool operator()() {
        const int64_t state = batch_ * width_;
        Pieces pieces(scratch_of<RunMemory>(Pieces::size<float>(state) * 3 + Pieces::size<float>(batch_) * 4 * parts_ +
                                            Pieces::size<float>(group_rows_ * columns_) +
                                            Pieces::size<float>(columns_)));
        h_[0] = pieces.take<float>(state);
        h_[1] = pieces.take<float>(state);
        c_ = pieces.take<float>(state);
        // Each part writes into cache lines of its own.
        range_stride_ = static_cast<int64_t>(Pieces::size<float>(batch_) / sizeof(float));
        low_ = pieces.take<float>(2 * parts_ * range_stride_);
        high_ = pieces.take<float>(2 * parts_ * range_stride_);
        x_gates_ = pieces.take<float>(group_rows_ * columns_);
        multiplier_ = pieces.take<float>(columns_);
        for (int64_t i = 0; i < columns_ && layer_.in_bytes() && !layer_.by_rows(); ++i)
            multiplier_[i] = input_.scale[0] * layer_.input_scale_[static_cast<size_t>(i)];
        // The states of these rows among those of all directions and rows.
        const int64_t at = (direction_ * sequence_.rows(0) + rows_.first()) * hidden_, steps = rows_.steps();
        const bool with_c = sequence_.first_c != nullptr;
        begin(sequence_.first_h + at, with_c ? sequence_.first_c + at : nullptr);
        threads_.run(0, steps, [&](int64_t s, int64_t part) { take(s, part); });
        for (int64_t r = 0, s = steps - 1; r < batch_; ++r) {
            // The last step that had this row: in the backward direction the last one has all.
            while (!backward() && batch_at(s) <= r) --s;
            const int64_t last = backward() ? steps - 1 : s, to = at + r * hidden_;
            std::copy_n(h_[last & 1] + r * width_, hidden_, sequence_.last_h + to);
            if (with_c) std::copy_n(c_ + r * width_, hidden_, sequence_.last_c + to);
        }
        return !failed_.load(std::memory_order_relaxed);
    }

private:
    // Parts of the hidden units, each with its share of the recurrent matrix. The threads meet after every step and are
    // handed nothing: a part of a step may be a fourth of what is worth a thread elsewhere.
    int64_t blocks_of_part(int64_t threads) const {
        const int64_t macs = batch_ * columns_ * hidden_, least = std::max<int64_t>(1, worth_macs(batch_) / 4);
        const int64_t parts = std::max<int64_t>(1, std::min({blocks_, threads, macs / least}));
        return std::max<int64_t>(1, (blocks_ + parts - 1) / parts);
    }
    // Elements from row to row of the operand. A tile reads rows side by side: at a distance of 1024 they would share
    // few places of the L1 cache.
    static int64_t stride_of(int64_t width) { return width % 1024 == 0 ? width + 64 : width; }

    bool backward() const { return direction_ == 1; }
    int64_t time_of(int64_t step) const { return backward() ? rows_.steps() - 1 - step : step; }
    int64_t batch_at(int64_t step) const { return rows_.rows(time_of(step)); }

    // Rows that join later find their first state in whichever of the two they look.
    void begin(const float* first_h, const float* first_c) {
        for (int64_t r = 0; r < batch_; ++r) {
            const auto put = [&](const float* from, float* to) {
                std::copy_n(from + r * hidden_, hidden_, to + r * width_);
                std::fill_n(to + r * width_ + hidden_, width_ - hidden_, 0.0f);
            };
            put(first_h, h_[0]);
            put(first_h, h_[1]);
            if (first_c != nullptr) put(first_c, c_);
        }
        std::fill_n(low_, 2 * parts_ * range_stride_, 0.0f);
        std::fill_n(high_, 2 * parts_ * range_stride_, 0.0f);
        if (!layer_.in_bytes()) return;
        for (int64_t r = 0; r < batch_; ++r) {
            float low = 0, high = 0;
            minmax(h_[0] + r * width_, {1, 1, width_, 0, nullptr}, 1, &low, &high);
            for (int64_t parity = 0; parity < 2; ++parity) {
                low_[parity * parts_ * range_stride_ + r] = low;
                high_[parity * parts_ * range_stride_ + r] = high;
            }
        }
    }

    // Steps whose input gates are computed together, for one part: its thread uses them while they are in its cache.
    struct Group {
        alignas(64) int64_t end = 0;
        int64_t first_row = 0;  // among all of rows_
    };

    // The group of step s, with its input gates for the blocks [begin, end).
    const Group& group_of(int64_t s, int64_t part, int64_t begin, int64_t end) {
        Group& group = groups_[static_cast<size_t>(part)];
        if (s < group.end) return group;
        int64_t rows = 0;
        while (group.end < rows_.steps() && (group.end == s || rows + batch_at(group.end) <= group_rows_))
            rows += batch_at(group.end++);
        const int64_t first_time = time_of(backward() ? group.end - 1 : s);
        group.first_row = rows_.offset(first_time);
        if (layer_.in_bytes())
            multiply_bytes(group.first_row, rows, begin * gates_, end * gates_);
        else
            multiply_floats(input_rows(first_time, first_time + group.end - s), rows, begin * gates_, end * gates_);
        return group;
    }

    // The panels [begin, end) of the input gates of some of rows_.
    void multiply_bytes(int64_t first, int64_t rows, int64_t begin, int64_t end) const {
        const bool by_rows = layer_.by_rows();
        MatmulOutput out;
        out.y = x_gates_;
        out.type = OutputType::f32;
        out.multiplier = by_rows ? layer_.input_scale_.data() : multiplier_;
        out.multipliers = columns_;
        out.kept = by_rows;
        if (!by_rows) out.float_bias = layer_.input_bias_.data();
        const int32_t zero_point = by_rows ? 0 : static_cast<int32_t>(input_.zero_point[0]);
        layer_.input_->run_panels({input_.q + first * layer_.inputs(), IntType::u8, zero_point}, rows, out, begin, end);
    }

    // Those of the times [first, end) one behind the other.
    const float* input_rows(int64_t first, int64_t end) const {
        const int64_t inputs = layer_.inputs();
        if (rows_.all()) return sequence_.x + rows_.place(first) * inputs;
        const size_t size = static_cast<size_t>((rows_.offset(end) - rows_.offset(first)) * inputs) * sizeof(float);
        float* const gathered = reinterpret_cast<float*>(scratch_of<GatheredMemory>(size));
        float* to = gathered;
        for (int64_t t = first; t < end; ++t)
            to = std::copy_n(sequence_.x + rows_.place(t) * inputs, rows_.rows(t) * inputs, to);
        return gathered;
    }

    // The same for float16 and float32 weights.
    void multiply_floats(const float* x, int64_t rows, int64_t begin, int64_t end) const {
        // The panels of a chunk stay in the cache for all rows of a strip.
        constexpr int64_t kStrip = 48, kPanels = 8;
        const int64_t inputs = layer_.inputs();
        for (int64_t chunk = begin; chunk < end; chunk += kPanels)
            for (int64_t strip = 0; strip < rows; strip += kStrip)
                multiply_floats(layer_.input_panels_, layer_.input_bias_,
                                {x + strip * inputs, std::min(kStrip, rows - strip), inputs, inputs},
                                x_gates_ + strip * columns_, chunk, std::min(chunk + kPanels, end));
    }

    struct Rows {
        const float* x;
        int64_t count, length, stride;
    };
    // The panels [begin, end) of a product with float16 or float32 weights.
    void multiply_floats(const AlignedBytes& panels, const std::vector<float>& bias, const Rows& rows, float* y,
                         int64_t begin, int64_t end) const {
        const auto fill = [&](auto a, auto kernel) {
            a.x = rows.x;
            a.rows = rows.count;
            a.depth = rows.length;
            a.x_stride = rows.stride;
            a.panels = reinterpret_cast<decltype(a.panels)>(panels.data());
            a.bias = bias.data();
            a.y = y;
            a.y_stride = columns_;
            if constexpr (std::is_same_v<decltype(a), FloatGemmArgs>) a.panel_stride = rows.length * kFloatPanel;
            kernel(a, begin, end);
        };
        if (layer_.numbers() == RecurrentNumbers::halves)
            fill(HalfGemmArgs{}, kernels().half_gemm);
        else
            fill(FloatGemmArgs{}, kernels().float_gemm);
    }

    // What a thread needs for a step.
    struct Step {
        uint8_t* bytes;
        uint8_t* operand;
        float* gates;
        int32_t* bias;
        float* multiplier;
        float* ranges;

        OperandRows rows(int64_t count, const RecurrentLayer& layer) const { return {ranges, count, layer.ranges()}; }
    };
    // The step whose hidden state the operand memory of a thread holds.
    struct Prepared {
        uint64_t run = 0;
        int64_t step = -1;
    };

    Step step_memory() const {
        const int64_t state = batch_ * width_, operand = batch_ * operand_stride_ + kOperandSlack;
        const int64_t gates = std::min(batch_, kRows) * columns_, ranges = OperandRows::kFloats * batch_;
        const int64_t size = layer_.in_bytes() ? layer_.kernel_->operand_size() : 1;
        Pieces pieces(scratch_of<StepMemory>(Pieces::size<uint8_t>(state) + Pieces::size<uint8_t>(operand * size) +
                                             Pieces::size<float>(gates) + Pieces::size<float>(columns_) * 2 +
                                             Pieces::size<float>(ranges)));
        Step m;
        m.bytes = pieces.take<uint8_t>(state);
        m.operand = pieces.take<uint8_t>(operand * size);
        m.gates = pieces.take<float>(gates);
        m.bias = pieces.take<int32_t>(columns_);
        m.multiplier = pieces.take<float>(columns_);
        m.ranges = pieces.take<float>(ranges);
        return m;
    }

    // The range i of rows [begin, end) of the hidden state before step s. False if they are not finite.
    bool set_range(OperandRows& operand, int64_t i, int64_t s, int64_t begin, int64_t end) const {
        const int64_t first = ((s + 1) & 1) * parts_ * range_stride_;
        float low = 0, high = 0, sum = 0;
        for (int64_t part = 0; part < parts_; ++part)
            for (int64_t r = begin; r < end; ++r) {
                const float l = low_[first + part * range_stride_ + r], g = high_[first + part * range_stride_ + r];
                low = l < low ? l : low;
                high = g > high ? g : high;
                sum += l;  // NaN shows here
            }
        if (std::isnan(sum) || std::isinf(low) || std::isinf(high)) return false;
        operand.set_range(i, low, high);
        return true;
    }

    // Quantizes the hidden state before step s. False if it is not finite.
    bool prepare(int64_t s, int64_t rows, const float* h, const Step& memory) const {
        thread_local Prepared prepared;
        if (prepared.run == run_ && prepared.step == s) return true;
        OperandRows operand = memory.rows(rows, layer_);
        const int64_t together = rows / operand.ranges();
        for (int64_t i = 0; i < operand.ranges(); ++i)
            if (!set_range(operand, i, s, i * together, (i + 1) * together)) return false;
        const GemmKernel& kernel = *layer_.kernel_;
        // A shifted operand of unsigned bytes is what they are.
        const bool in_place = kernel.operand == Operand::shifted && operand_stride_ == width_;
        operand.quantize(h, in_place ? memory.operand : memory.bytes, width_, 0, rows);
        const Activation activation{false, zero_point_of(operand)};
        for (int64_t r = 0; r < rows && !in_place; ++r)
            kernel.convert(memory.bytes + r * width_, width_, activation,
                           memory.operand + r * operand_stride_ * kernel.operand_size());
        prepared = {run_, s};
        return true;
    }

    // Of the product: rows with ranges of their own are multiplied as they are.
    int32_t zero_point_of(const OperandRows& operand) const {
        return layer_.by_rows() ? 0 : static_cast<int32_t>(operand.zero_point()[0]);
    }

    // The epilogue's arrays for the panels [begin, end), for an operand with one range.
    void fold(const OperandRows& operand, int64_t begin, int64_t end, const Step& memory) const {
        const PackedWeights& w = layer_.recurrent_;
        const float scale = operand.scale()[0];
        const float* w_scale = layer_.recurrent_scale_.data();
        for (int64_t i = begin * kPanel; i < end * kPanel; ++i) memory.multiplier[i] = scale * w_scale[i];
        if (layer_.kernel_->operand == Operand::centered) {
            std::fill(memory.bias + begin * kPanel, memory.bias + end * kPanel, 0);
            return;
        }
        const uint32_t zero_point = static_cast<uint32_t>(zero_point_of(operand)),
                       depth = static_cast<uint32_t>(hidden_);
        for (int64_t i = begin * kPanel; i < end * kPanel; ++i) {
            uint32_t sum = static_cast<uint32_t>(w.sums[static_cast<size_t>(i)]);
            if (!w.zero_point.empty()) sum -= depth * static_cast<uint32_t>(w.zero_point[static_cast<size_t>(i)]);
            const uint32_t folded = 0u - zero_point * sum;
            std::memcpy(memory.bias + i, &folded, sizeof folded);
        }
    }

    // Part `part` of step s.
    void take(int64_t s, int64_t part) {
        const int64_t time = time_of(s), rows = rows_.rows(time);
        const int64_t begin = part * blocks_per_part_, end = std::min(begin + blocks_per_part_, blocks_);
        const float* before = h_[(s + 1) & 1];
        float* after = h_[s & 1];
        const Step memory = step_memory();
        const OperandRows operand = memory.rows(rows, layer_);
        if (layer_.in_bytes()) {
            if (failed_.load(std::memory_order_relaxed) || !prepare(s, rows, before, memory)) {
                failed_.store(true, std::memory_order_relaxed);
                return;
            }
            if (!layer_.by_rows()) fold(operand, begin * gates_, end * gates_, memory);
        }
        const Group& group = group_of(s, part, begin, end);
        const int64_t first_unit = begin * kCellBlock, units = std::min(end * kCellBlock, hidden_) - first_unit;
        for (int64_t r = 0; r < rows; r += kRows) {
            const int64_t count = std::min(kRows, rows - r);
            multiply_hidden(r, count, before, operand, begin * gates_, end * gates_, memory);
            CellArgs a;
            a.cell = layer_.cell();
            a.rows = count;
            a.x.v = x_gates_ + (rows_.offset(time) - group.first_row + r) * columns_;
            a.h.v = memory.gates;
            a.x.stride = a.h.stride = columns_;
            if (layer_.by_rows()) {
                a.x.scale = input_.scale + rows_.offset(time) + r;
                a.x.zero_point = input_.zero_point + rows_.offset(time) + r;
                a.x.sums = layer_.input_sums_.data();
                a.x.bias = layer_.input_bias_.data();
                a.h.scale = operand.scale() + r;
                a.h.zero_point = operand.zero_point() + r;
                a.h.sums = layer_.recurrent_sums_.data();
                a.h.bias = layer_.recurrent_bias_.data();
            }
            a.before = before + r * width_;
            a.after = after + r * width_;
            a.c = c_ + r * width_;
            a.stride = width_;
            a.low = low_ + ((s & 1) * parts_ + part) * range_stride_ + r;
            a.high = high_ + ((s & 1) * parts_ + part) * range_stride_ + r;
            kernels().cell(a, begin, end);
            for (int64_t i = r; i < r + count; ++i)
                std::copy_n(after + i * width_ + first_unit, units,
                            y_ + (rows_.place(time) + i) * y_stride_ + first_unit);
        }
    }

    // The panels [begin, end) of the recurrent product for `count` rows from r on.
    void multiply_hidden(int64_t r, int64_t count, const float* before, const OperandRows& operand, int64_t begin,
                         int64_t end, const Step& memory) const {
        if (!layer_.in_bytes())
            return multiply_floats(layer_.recurrent_panels_, layer_.recurrent_bias_,
                                   {before + r * width_, count, hidden_, width_}, memory.gates, begin, end);
        const GemmKernel& kernel = *layer_.kernel_;
        const PackedWeights& w = layer_.recurrent_;
        int64_t row_offset[kRows], y_offset[kRows];
        for (int64_t i = 0; i < count; ++i) {
            row_offset[i] = (r + i) * operand_stride_;
            y_offset[i] = i * columns_;
        }
        const int64_t tap = 0;
        GemmArgs a;
        a.x = memory.operand;
        a.rows = row_offset;
        a.m = a.run = count;
        a.row_step = operand_stride_;
        a.taps = &tap;
        a.tap_count = 1;
        a.channels = hidden_;
        a.panels = reinterpret_cast<const int8_t*>(w.panels.data());
        a.n = columns_;
        a.w_zero_point = w.zero_point.empty() ? nullptr : w.zero_point.data();
        a.w_sums = w.sums.data();
        a.x_zero_point = zero_point_of(operand);
        a.y = memory.gates;
        a.y_rows = y_offset;
        a.epilogue.type = OutputType::f32;
        const bool by_rows = layer_.by_rows();
        a.epilogue.bias = by_rows ? layer_.no_sums_.data() : memory.bias;
        a.epilogue.multiplier = by_rows ? layer_.recurrent_scale_.data() : memory.multiplier;
        a.epilogue.float_bias = by_rows ? layer_.no_bias_.data() : layer_.recurrent_bias_.data();
        kernel.multiply(a, begin, end);
    }

    const RecurrentLayer& layer_;
    const RecurrentSequence& sequence_;
    const SequenceRows& rows_;
    const QuantizedInput input_;
    const int64_t direction_, gates_, hidden_, blocks_, width_, columns_, batch_, y_stride_;
    float* const y_;
    const int64_t operand_stride_;
    const uint64_t run_;
    const int64_t blocks_per_part_;
    StepThreads threads_;
    const int64_t parts_;
    std::vector<Group> groups_;  // of each part
    const int64_t group_rows_;
    int64_t range_stride_ = 0;
    float *h_[2] = {}, *c_ = nullptr, *low_ = nullptr, *high_ = nullptr, *x_gates_ = nullptr, *multiplier_ = nullptr;
    std::atomic<bool> failed_{false};
};

namespace {

// Rows that are not quantized by one range do not need each other: each thread takes some through the whole sequence
// and waits for no other. But each reads all weights. Where these come from beyond L2, or have to be converted, few
// rows are shared in parts of the hidden units instead, with a part of the weights for each thread. (Zen 4, 8 bits,
// three layers of 256 units, two threads: one row each took 2.1 to 2.3 ms, parts 1.8 ms, but 3.1 where the cores did
// not share an L3; two rows each 3.2 to 3.6 ms, parts 3.2 and 5.3. One layer in float16, one row each: 1.7 ms,
// parts 1.4.)
int64_t parts_of_rows(const RecurrentLayer& layer, int64_t batch, int64_t rows) {
    if (layer.in_bytes() && !layer.by_rows()) return 1;
    const int64_t threads = num_threads(), columns = cell_gates(layer.cell()) * layer.hidden();
    const int64_t size = layer.in_bytes() ? 1 : layer.numbers() == RecurrentNumbers::halves ? 2 : 4;
    const bool in_cache = columns * layer.hidden() * size <= machine().l2_share();
    const int64_t least = !in_cache ? 16 : layer.in_bytes() ? 1 : 4;
    const int64_t macs = rows * columns * (layer.hidden() + layer.inputs());
    return batch >= threads * least && macs >= threads * worth_macs(batch / threads) ? threads : 1;
}

}  // namespace

void run_recurrent(const std::vector<const RecurrentLayer*>& layers, const RecurrentSequence& sequence) {
    require(layers.size() == 1 || layers.size() == 2, "a layer has one direction or two");
    const RecurrentLayer& first = *layers[0];
    const RecurrentLayer& last = *layers.back();
    require(first.cell() == last.cell() && first.hidden() == last.hidden() && first.inputs() == last.inputs() &&
                first.numbers() == last.numbers() && first.ranges() == last.ranges(),
            "both directions must be of the same kind and size");
    require(first.hidden() > 0, "there must be a hidden unit");
    require(sequence.steps > 0, "there must be a step");
    int64_t rows = 0;
    for (int64_t t = 0; t < sequence.steps; ++t) {
        require(sequence.rows(t) >= 0 && (t == 0 || sequence.rows(t) <= sequence.rows(t - 1)),
                "batch sizes must not grow from step to step");
        rows += sequence.rows(t);
    }
    const int64_t batch = sequence.rows(0);
    if (batch == 0) return;
    const int64_t directions = static_cast<int64_t>(layers.size());
    prepare_output(sequence.y, static_cast<size_t>(rows * directions * first.hidden()) * sizeof(float));

    std::atomic<bool> finite{true};
    const auto run = [&](const SequenceRows& some, const QuantizedInput& input, int64_t d, int64_t threads) {
        RecurrentRun one(*layers[static_cast<size_t>(d)], sequence, some, input, d, directions, threads);
        if (!one()) finite.store(false, std::memory_order_relaxed);
    };
    if (const int64_t parts = parts_of_rows(first, batch, rows); parts > 1) {
        const std::vector<SequenceRows> cut = cut_rows(sequence, parts);
        parallel_for(static_cast<int64_t>(cut.size()), 1, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                const SequenceRows& some = cut[static_cast<size_t>(i)];
                QuantizedInput input;
                if (first.in_bytes()) input = quantized_input(sequence.x, some, first.inputs(), first.ranges(), true);
                for (int64_t d = 0; d < directions; ++d) run(some, input, d, 1);
            }
        });
    } else {
        const SequenceRows all(sequence, 0, batch);
        QuantizedInput input;
        if (first.in_bytes()) input = quantized_input(sequence.x, all, first.inputs(), first.ranges(), false);
        // Two directions keep two or three threads busy without waiting for each other; more share each of them.
        if (directions == 2 && num_threads() > 1 && num_threads() < 4) {
            parallel_for(2, 1, [&](int64_t begin, int64_t end) {
                for (int64_t d = begin; d < end; ++d) run(all, input, d, 1);
            });
        } else {
            for (int64_t d = 0; d < directions; ++d) run(all, input, d, num_threads());
        }
    }
    require(finite.load(std::memory_order_relaxed),
            "the hidden state must be finite to be quantized, and became NaN or infinite on the way");
}

}  // namespace zeropoint
