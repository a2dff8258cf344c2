#include "operators/recurrent.h"

#include "cpu/machine.h"
#include "cpu/memory.h"
#include "cpu/spin.h"
#include "cpu/threads.h"
#include "kernels/registry.h"
#include "operators/affine.h"
#include "operators/qparams.h"
#include "operators/ranges.h"
#include "operators/scratch.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace zeropoint {
namespace {

static_assert(kCellBlock == kPanel && kCellBlock == kHalfPanel && kCellBlock == kFloatPanel,
              "a gate of a block is one panel");

struct InputMemory;
struct InputRowMemory;
struct RunMemory;
struct StepMemory;

// Rows of the recurrent product that are multiplied together: a multiple of the tile heights 6, 12 and 16.
constexpr int64_t kRows = 96;

int64_t blocks_of(int64_t hidden) { return (hidden + kCellBlock - 1) / kCellBlock; }

// Row n of a matrix goes to the place of its gate in its block; places without a row have `empty`.
template <class T>
std::vector<T> in_blocks(const T* from, int64_t length, int64_t gates, int64_t hidden, T empty) {
    std::vector<T> to(static_cast<size_t>(blocks_of(hidden) * gates * kCellBlock * length), empty);
    if (from == nullptr) return to;
    for (int64_t gate = 0; gate < gates; ++gate)
        for (int64_t unit = 0; unit < hidden; ++unit) {
            const int64_t place = (unit / kCellBlock * gates + gate) * kCellBlock + unit % kCellBlock;
            std::copy_n(from + (gate * hidden + unit) * length, length, to.data() + place * length);
        }
    return to;
}

// Scales and zero points may be one for all rows.
template <class T>
std::vector<T> one_each(const T* from, int64_t count, int64_t rows) {
    std::vector<T> to(static_cast<size_t>(rows));
    for (int64_t i = 0; i < rows; ++i) to[static_cast<size_t>(i)] = from[count == 1 ? 0 : i];
    return to;
}

void require(bool ok, const std::string& what) {
    if (!ok) throw std::invalid_argument("recurrent: " + what);
}

void require_valid(const RecurrentWeight& w, int64_t rows) {
    if (w.numbers != RecurrentNumbers::bytes) return;
    require(w.scales == 1 || w.scales == rows,
            "there are " + std::to_string(w.scales) + " weight scales for " + std::to_string(rows) + " rows");
    require(w.zero_points == 1 || w.zero_points == rows,
            "there are " + std::to_string(w.zero_points) + " weight zero_points for " + std::to_string(rows) + " rows");
    for (int64_t i = 0; i < w.scales; ++i)
        require(std::isfinite(w.scale[i]) && w.scale[i] > 0,
                "every weight scale must be finite and positive, got " + std::to_string(w.scale[i]));
    const int32_t low = w.type == IntType::u8 ? 0 : -128;
    for (int64_t i = 0; i < w.zero_points; ++i)
        require(w.zero_point[i] >= low && w.zero_point[i] <= low + 255,
                "a weight zero_point is " + std::to_string(w.zero_point[i]) + ", outside " + std::to_string(low) +
                    ".." + std::to_string(low + 255));
}

// 8-bit weights in blocks; rows that are not there are all zero.
struct BlockWeights {
    std::vector<uint8_t> data;
    std::vector<int32_t> zero_point;
    std::vector<float> scale;

    BlockWeights(const RecurrentWeight& w, int64_t gates, int64_t hidden, int64_t inputs) {
        const int64_t rows = gates * hidden;
        const std::vector<int32_t> zero = one_each(w.zero_point, w.zero_points, rows);
        const int32_t none = rows > 0 ? zero[0] : 0;
        zero_point = in_blocks(zero.data(), 1, gates, hidden, none);
        scale = in_blocks(one_each(w.scale, w.scales, rows).data(), 1, gates, hidden, 1.0f);
        data = in_blocks(static_cast<const uint8_t*>(w.data), inputs, gates, hidden, static_cast<uint8_t>(none));
    }
    WeightTensor tensor(IntType type) const {
        return {data.data(), type, zero_point.data(), static_cast<int64_t>(zero_point.size())};
    }
    // What a row of ones gives.
    std::vector<float> sums(IntType type, int64_t inputs) const {
        std::vector<float> to(scale.size());
        for (size_t n = 0; n < to.size(); ++n) {
            const uint8_t* row = data.data() + n * static_cast<size_t>(inputs);
            int64_t sum = -inputs * zero_point[n];
            for (int64_t k = 0; k < inputs; ++k) sum += type == IntType::u8 ? row[k] : static_cast<int8_t>(row[k]);
            to[n] = static_cast<float>(sum) * scale[n];
        }
        return to;
    }
};

// [panel][k][output channel of the panel]
template <class T>
AlignedBytes panels_of(const RecurrentWeight& w, int64_t gates, int64_t hidden, int64_t inputs) {
    const std::vector<T> rows = in_blocks(static_cast<const T*>(w.data), inputs, gates, hidden, T{});
    AlignedBytes panels(rows.size() * sizeof(T));
    T* to = reinterpret_cast<T*>(panels.data());
    for (int64_t p = 0; p < blocks_of(hidden) * gates; ++p)
        for (int64_t k = 0; k < inputs; ++k)
            for (int64_t n = 0; n < kHalfPanel; ++n)
                *to++ = rows[static_cast<size_t>((p * kHalfPanel + n) * inputs + k)];
    return panels;
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

// Operands as bytes: with one scale and zero point, or those of each row.
struct QuantizedInput {
    const uint8_t* q = nullptr;
    float scale = 1;
    int32_t zero_point = 0;
    const float *row_scale = nullptr, *row_zero = nullptr;
};

// The columns [begin, end) of a product whose rows have scales and zero points of their own.
void rescale_rows(float* y, int64_t rows, int64_t stride, int64_t begin, int64_t end, const float* scale,
                  const float* zero_point, const std::vector<float>& sums, const std::vector<float>& bias) {
    const float *sum = sums.data(), *add = bias.data();
    for (int64_t r = 0; r < rows; ++r) {
        float* row = y + r * stride;
        const float s = scale[r], z = zero_point[r];
        for (int64_t n = begin; n < end; ++n) row[n] = (row[n] - z * sum[n]) * s + add[n];
    }
}

// The most that an operand may be; it is 255 or 127 before the zero point is rounded.
double most_of(bool reduce_range) { return reduce_range ? kNarrowMost : 255; }

// (scale, zero point) of a range that must be finite.
QParams dynamic_qparams(float low, float high, bool reduce_range) {
    return qparams_of_range(low, high, 0, reduce_range ? 127 : 255, false, false);
}

// The whole input in memory of this thread: valid until it makes another.
QuantizedInput quantized_input(const float* x, int64_t rows, int64_t inputs, const RecurrentRanges& ranges) {
    const int64_t elements = rows * inputs, count = ranges.per_row ? rows : 1;
    uint8_t* q = scratch_of<InputMemory>(static_cast<size_t>(elements));
    float* scale = reinterpret_cast<float*>(scratch_of<InputRowMemory>(static_cast<size_t>(4 * count) * sizeof(float)));
    float *zero = scale + count, *low = zero + count, *high = low + count;
    std::fill(low, low + 2 * count, 0.0f);
    const Grid grid{count, 1, elements / count, 1, nullptr};
    if (elements > 0) minmax(x, grid, count, low, high);
    for (int64_t i = 0; i < count; ++i) {
        require(std::isfinite(low[i]) && std::isfinite(high[i]),
                "the input must be finite to be quantized, got a range of [" + std::to_string(low[i]) + ", " +
                    std::to_string(high[i]) + "]");
        const QParams p = dynamic_qparams(low[i], high[i], ranges.reduce_range);
        scale[i] = static_cast<float>(p.scale);
        zero[i] = static_cast<float>(p.zero_point);
    }
    quantize(x, q, IntType::u8, grid, {scale, ScalarType::f32, count}, {zero, ScalarType::f32, count}, Spelling::fused,
             0, most_of(ranges.reduce_range));
    if (ranges.per_row) return {q, 1.0f, 0, scale, zero};
    return {q, scale[0], static_cast<int32_t>(zero[0])};
}

std::atomic<uint64_t> g_runs{0};

}  // namespace

RecurrentLayer::RecurrentLayer(Cell cell, int64_t hidden, int64_t inputs, const RecurrentRanges& ranges,
                               const RecurrentWeight& input, const RecurrentWeight& recurrent)
    : cell_(cell),
      hidden_(hidden),
      inputs_(inputs),
      numbers_(input.numbers),
      ranges_(ranges) {
    require(input.numbers == recurrent.numbers, "both matrices must be 8 bit, or both float16, or both float32");
    const int64_t gates = cell_gates(cell), outputs = blocks_of(hidden) * gates * kCellBlock;
    require_valid(input, gates * hidden);
    require_valid(recurrent, gates * hidden);
    input_bias_ = in_blocks(input.bias, 1, gates, hidden, 0.0f);
    recurrent_bias_ = in_blocks(recurrent.bias, 1, gates, hidden, 0.0f);
    if (!in_bytes()) {
        const auto pack = numbers_ == RecurrentNumbers::halves ? panels_of<uint16_t> : panels_of<float>;
        input_panels_ = pack(input, gates, hidden, inputs);
        recurrent_panels_ = pack(recurrent, gates, hidden, hidden);
        return;
    }
    kernel_ = ranges.reduce_range ? &kernels().narrow_gemm() : &kernels().gemm();
    BlockWeights first(input, gates, hidden, inputs), second(recurrent, gates, hidden, hidden);
    input_ = std::make_unique<LinearPlan>(first.tensor(input.type), outputs, inputs, *kernel_);
    recurrent_ = pack_weights(*kernel_, second.tensor(recurrent.type), 0, outputs, 1, hidden, {{0}});
    if (ranges.per_row) {
        input_sums_ = first.sums(input.type, inputs);
        recurrent_sums_ = second.sums(recurrent.type, hidden);
        no_bias_.resize(static_cast<size_t>(outputs));
    }
    input_scale_ = std::move(first.scale);
    recurrent_scale_ = std::move(second.scale);
}

// One direction of a sequence. Steps are counted as they are done: step 0 of the second direction is the last one.
class RecurrentRun {
public:
    RecurrentRun(const RecurrentLayer& layer, const RecurrentSequence& sequence, const int64_t* offsets,
                 const QuantizedInput& input, int64_t direction, int64_t directions, int64_t threads)
        : layer_(layer),
          sequence_(sequence),
          offsets_(offsets),
          input_(input),
          backward_(direction == 1),
          gates_(cell_gates(layer.cell())),
          hidden_(layer.hidden()),
          blocks_(blocks_of(hidden_)),
          width_(blocks_ * kCellBlock),
          columns_(width_ * gates_),
          batch_(sequence.rows(0)),
          y_stride_(directions * hidden_),
          y_(sequence.y + direction * hidden_),
          operand_stride_(width_ + 64),
          run_(1 + g_runs.fetch_add(1, std::memory_order_relaxed)) {
        // Parts of the hidden units, each with its share of the recurrent matrix. The threads meet after every step
        // and are handed nothing: a part of a step may be a fourth of what is worth a thread elsewhere.
        const int64_t macs = batch_ * columns_ * hidden_, least = std::max<int64_t>(1, worth_macs(batch_) / 4);
        const int64_t parts = std::max<int64_t>(1, std::min({blocks_, threads, macs / least}));
        blocks_per_part_ = std::max<int64_t>(1, (blocks_ + parts - 1) / parts);
        parts_ = (blocks_ + blocks_per_part_ - 1) / blocks_per_part_;
        begun_ = std::vector<std::atomic<int64_t>>(static_cast<size_t>(parts_));
        group_rows_ = std::max(batch_, gate_bytes() / (columns_ * static_cast<int64_t>(sizeof(float))));
    }

    // first_h, ...: (batch, hidden). Returns whether every hidden state that had to be quantized was finite.
    bool operator()(const float* first_h, const float* first_c, float* last_h, float* last_c) {
        const int64_t state = batch_ * width_;
        const bool with_c = first_c != nullptr;
        Pieces pieces(
            scratch_of<RunMemory>(Pieces::size<float>(state) * 3 + Pieces::size<float>(2 * parts_ * batch_) * 2 +
                                  Pieces::size<float>(group_rows_ * columns_) + Pieces::size<float>(columns_)));
        h_[0] = pieces.take<float>(state);
        h_[1] = pieces.take<float>(state);
        c_ = pieces.take<float>(state);
        low_ = pieces.take<float>(2 * parts_ * batch_);
        high_ = pieces.take<float>(2 * parts_ * batch_);
        x_gates_ = pieces.take<float>(group_rows_ * columns_);
        multiplier_ = pieces.take<float>(columns_);
        for (int64_t i = 0; i < columns_ && layer_.in_bytes(); ++i)
            multiplier_[i] = input_.scale * layer_.input_scale_[static_cast<size_t>(i)];
        begin(first_h, first_c);

        const int64_t steps = sequence_.steps;
        for (int64_t first = 0, end = 0; first < steps; first = end) {
            int64_t rows = 0;
            while (end < steps && (end == first || rows + batch_at(end) <= group_rows_)) rows += batch_at(end++);
            multiply_input(first, end, rows);
            take_steps(first, end);
        }

        for (int64_t r = 0, s = steps - 1; r < batch_; ++r) {
            // The last step that had this row: in the backward direction the last one has all.
            while (!backward_ && batch_at(s) <= r) --s;
            const int64_t last = backward_ ? steps - 1 : s;
            std::copy_n(h_[last & 1] + r * width_, hidden_, last_h + r * hidden_);
            if (with_c) std::copy_n(c_ + r * width_, hidden_, last_c + r * hidden_);
        }
        return !failed_.load(std::memory_order_relaxed);
    }

private:
    using Clock = std::chrono::steady_clock;

    int64_t time_of(int64_t step) const { return backward_ ? sequence_.steps - 1 - step : step; }
    int64_t batch_at(int64_t step) const { return sequence_.rows(time_of(step)); }

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
        std::fill_n(low_, 2 * parts_ * batch_, 0.0f);
        std::fill_n(high_, 2 * parts_ * batch_, 0.0f);
        if (!layer_.in_bytes()) return;
        for (int64_t r = 0; r < batch_; ++r) {
            float low = 0, high = 0;
            minmax(h_[0] + r * width_, {1, 1, width_, 0, nullptr}, 1, &low, &high);
            for (int64_t parity = 0; parity < 2; ++parity) {
                low_[parity * parts_ * batch_ + r] = low;
                high_[parity * parts_ * batch_ + r] = high;
            }
        }
    }

    // The input gates of the steps [first, end).
    void multiply_input(int64_t first, int64_t end, int64_t rows) {
        const int64_t from = offsets_[time_of(backward_ ? end - 1 : first)], inputs = layer_.inputs();
        group_offset_ = from;
        if (layer_.in_bytes()) {
            MatmulOutput out;
            out.y = x_gates_;
            out.type = OutputType::f32;
            out.multiplier = multiplier_;
            out.multipliers = columns_;
            if (!layer_.ranges().per_row) out.float_bias = layer_.input_bias_.data();
            layer_.input_->run({input_.q + from * inputs, IntType::u8, input_.zero_point}, rows, out);
            if (!layer_.ranges().per_row) return;
            parallel_for(rows, std::max<int64_t>(1, 16384 / columns_), [&](int64_t begin, int64_t stop) {
                rescale_rows(x_gates_ + begin * columns_, stop - begin, columns_, 0, columns_,
                             input_.row_scale + from + begin, input_.row_zero + from + begin, layer_.input_sums_,
                             layer_.input_bias_);
            });
            return;
        }
        // Strips of rows times chunks of panels; the panels of a chunk stay in the cache for all rows of a strip.
        constexpr int64_t kStrip = 48, kPanels = 8;
        const int64_t panels = columns_ / kHalfPanel, chunks = (panels + kPanels - 1) / kPanels;
        const int64_t strips = (rows + kStrip - 1) / kStrip;
        const int64_t macs = std::min(rows, kStrip) * kPanels * kHalfPanel * inputs;
        parallel_for(strips * chunks, std::max<int64_t>(1, 200000 / std::max<int64_t>(1, macs)),
                     [&](int64_t begin, int64_t stop) {
                         for (int64_t task = begin; task < stop; ++task) {
                             const int64_t strip = task % strips * kStrip, chunk = task / strips * kPanels;
                             multiply_floats(layer_.input_panels_, layer_.input_bias_,
                                             {sequence_.x + (from + strip) * inputs, std::min(kStrip, rows - strip),
                                              inputs, inputs},
                                             x_gates_ + strip * columns_, chunk, std::min(chunk + kPanels, panels));
                         }
                     });
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

    // Each thread has a part that it prefers, whose memory is then in its cache, and takes others that nobody has
    // begun. It waits for a step only when all parts of it are in someone's hands: no number of threads can lock up.
    // But where more threads want to run than there are cores, every step may wait for one that does not: after a few
    // such waits one thread goes on alone.
    void take_steps(int64_t first, int64_t end) {
        if (parts_ == 1 || alone_.load(std::memory_order_relaxed)) {
            for (int64_t s = first; s < end; ++s)
                for (int64_t part = 0; part < parts_; ++part) take(s, part);
            return;
        }
        std::atomic<int64_t> arrived{0};
        for (std::atomic<int64_t>& step : begun_) step.store(first, std::memory_order_relaxed);
        done_.store(0, std::memory_order_relaxed);
        parallel_for(parts_, 1, [&](int64_t, int64_t) {
            const int64_t preferred = arrived.fetch_add(1, std::memory_order_relaxed);
            for (int64_t s = first; s < end; ++s) {
                if (preferred != 0 && alone_.load(std::memory_order_relaxed)) return;
                const Clock::time_point start = Clock::now();
                for (int64_t i = 0; i < parts_; ++i) take_if_free(s, (preferred + i) % parts_);
                wait_for_all((s + 1 - first) * parts_, start);
            }
        });
    }

    void take_if_free(int64_t s, int64_t part) {
        std::atomic<int64_t>& begun = begun_[static_cast<size_t>(part)];
        int64_t expected = s;
        if (begun.load(std::memory_order_relaxed) != s ||
            !begun.compare_exchange_strong(expected, s + 1, std::memory_order_relaxed))
            return;
        take(s, part);
        done_.fetch_add(1, std::memory_order_release);
    }

    // Until `all` parts are done. A wait is in vain if it is long, and longer than the thread itself has worked.
    void wait_for_all(int64_t all, Clock::time_point start) {
        constexpr std::chrono::microseconds kLong(100);
        constexpr int kWaitsInVain = 4;
        const Clock::time_point finished = Clock::now();
        const Clock::duration patience = 2 * (finished - start) + kLong;
        bool counted = false;
        Spin spin;
        for (int round = 0; done_.load(std::memory_order_acquire) < all; ++round) {
            spin.wait_or_yield();
            if (counted || round % 256 != 255 || Clock::now() - finished < patience) continue;
            counted = true;
            if (waits_in_vain_.fetch_add(1, std::memory_order_relaxed) + 1 >= kWaitsInVain)
                alone_.store(true, std::memory_order_relaxed);
        }
    }

    // What a thread needs for a step.
    struct Step {
        uint8_t* bytes;
        uint8_t* operand;
        float* gates;
        int32_t* bias;
        float* multiplier;
        float *row_scale, *row_zero, *row_inverse;
    };
    // The step whose hidden state the operand memory of a thread holds.
    struct Prepared {
        uint64_t run = 0;
        int64_t step = -1;
        QParams qparams;
    };

    Step step_memory() const {
        const int64_t state = batch_ * width_, operand = batch_ * operand_stride_ + kOperandSlack;
        const int64_t gates = std::min(batch_, kRows) * columns_;
        const int64_t size = layer_.in_bytes() ? layer_.kernel_->operand_size() : 1;
        Pieces pieces(scratch_of<StepMemory>(Pieces::size<uint8_t>(state) + Pieces::size<uint8_t>(operand * size) +
                                             Pieces::size<float>(gates) + Pieces::size<float>(columns_) * 2 +
                                             Pieces::size<float>(batch_) * 3));
        Step m;
        m.bytes = pieces.take<uint8_t>(state);
        m.operand = pieces.take<uint8_t>(operand * size);
        m.gates = pieces.take<float>(gates);
        m.bias = pieces.take<int32_t>(columns_);
        m.multiplier = pieces.take<float>(columns_);
        m.row_scale = pieces.take<float>(batch_);
        m.row_zero = pieces.take<float>(batch_);
        m.row_inverse = pieces.take<float>(batch_);
        return m;
    }

    // Of rows [begin, end) of the hidden state before step s. False if they are not finite.
    bool range_of(int64_t s, int64_t begin, int64_t end, bool reduce_range, QParams& qparams) const {
        const int64_t ranges = ((s + 1) & 1) * parts_ * batch_;
        float low = 0, high = 0, sum = 0;
        for (int64_t part = 0; part < parts_; ++part)
            for (int64_t r = begin; r < end; ++r) {
                const float l = low_[ranges + part * batch_ + r], g = high_[ranges + part * batch_ + r];
                low = l < low ? l : low;
                high = g > high ? g : high;
                sum += l;  // NaN shows here
            }
        if (std::isnan(sum) || std::isinf(low) || std::isinf(high)) return false;
        qparams = dynamic_qparams(low, high, reduce_range);
        return true;
    }

    // Quantizes the hidden state before step s: the scale and zero point of the product, and with per_row those of each
    // row in `memory`. False if it is not finite.
    bool prepare(int64_t s, int64_t rows, const float* h, const Step& memory, QParams& qparams) {
        thread_local Prepared prepared;
        if (prepared.run == run_ && prepared.step == s) {
            qparams = prepared.qparams;
            return true;
        }
        // Ranges in turn: of each row, or of all.
        const bool per_row = layer_.ranges().per_row, reduce_range = layer_.ranges().reduce_range;
        const int64_t count = per_row ? rows : 1, together = per_row ? 1 : rows;
        for (int64_t i = 0; i < count; ++i) {
            if (!range_of(s, i, i + together, reduce_range, qparams)) return false;
            memory.row_scale[i] = static_cast<float>(qparams.scale);
            memory.row_zero[i] = static_cast<float>(qparams.zero_point);
            memory.row_inverse[i] = 1.0f / memory.row_scale[i];
        }
        if (per_row) qparams = {};
        QuantizeArgs q;
        q.x = h;
        q.y = memory.bytes;
        q.dst = IntType::u8;
        q.grid = {count, 1, together * width_, 1, nullptr};
        q.inv = memory.row_inverse;
        q.zero_point = memory.row_zero;
        q.spelling = Spelling::fused;
        q.qmin = 0;
        q.qmax = most_of(reduce_range);
        kernels().quantize(q, 0, rows * width_);
        const GemmKernel& kernel = *layer_.kernel_;
        const Activation activation{false, static_cast<int32_t>(qparams.zero_point)};
        for (int64_t r = 0; r < rows; ++r)
            kernel.convert(memory.bytes + r * width_, width_, activation,
                           memory.operand + r * operand_stride_ * kernel.operand_size());
        prepared = {run_, s, qparams};
        return true;
    }

    // The columns of `panels` of an epilogue whose input has these parameters.
    void fold(const QParams& qparams, int64_t begin, int64_t end, const Step& memory) const {
        const PackedWeights& w = layer_.recurrent_;
        const float scale = static_cast<float>(qparams.scale);
        const float* w_scale = layer_.recurrent_scale_.data();
        for (int64_t i = begin * kPanel; i < end * kPanel; ++i) memory.multiplier[i] = scale * w_scale[i];
        if (layer_.kernel_->operand == Operand::centered) {
            std::fill(memory.bias + begin * kPanel, memory.bias + end * kPanel, 0);
            return;
        }
        const uint32_t zero_point = static_cast<uint32_t>(qparams.zero_point), depth = static_cast<uint32_t>(hidden_);
        for (int64_t i = begin * kPanel; i < end * kPanel; ++i) {
            uint32_t sum = static_cast<uint32_t>(w.sums[static_cast<size_t>(i)]);
            if (!w.zero_point.empty()) sum -= depth * static_cast<uint32_t>(w.zero_point[static_cast<size_t>(i)]);
            const uint32_t folded = 0u - zero_point * sum;
            std::memcpy(memory.bias + i, &folded, sizeof folded);
        }
    }

    // Part `part` of step s.
    void take(int64_t s, int64_t part) {
        const int64_t time = time_of(s), rows = sequence_.rows(time);
        const int64_t begin = part * blocks_per_part_, end = std::min(begin + blocks_per_part_, blocks_);
        const float* before = h_[(s + 1) & 1];
        float* after = h_[s & 1];
        const Step memory = step_memory();
        QParams qparams;
        if (layer_.in_bytes()) {
            if (failed_.load(std::memory_order_relaxed) || !prepare(s, rows, before, memory, qparams)) {
                failed_.store(true, std::memory_order_relaxed);
                return;
            }
            fold(qparams, begin * gates_, end * gates_, memory);
        }
        const int64_t first_unit = begin * kCellBlock, units = std::min(end * kCellBlock, hidden_) - first_unit;
        for (int64_t r = 0; r < rows; r += kRows) {
            const int64_t count = std::min(kRows, rows - r);
            multiply_hidden(r, count, before, qparams, begin * gates_, end * gates_, memory);
            CellArgs a;
            a.cell = layer_.cell();
            a.rows = count;
            a.x = x_gates_ + (offsets_[time] - group_offset_ + r) * columns_;
            a.h = memory.gates;
            a.x_stride = a.h_stride = columns_;
            a.before = before + r * width_;
            a.after = after + r * width_;
            a.c = c_ + r * width_;
            a.stride = width_;
            a.low = low_ + ((s & 1) * parts_ + part) * batch_ + r;
            a.high = high_ + ((s & 1) * parts_ + part) * batch_ + r;
            kernels().cell(a, begin, end);
            for (int64_t i = r; i < r + count; ++i)
                std::copy_n(after + i * width_ + first_unit, units, y_ + (offsets_[time] + i) * y_stride_ + first_unit);
        }
    }

    // The panels [begin, end) of the recurrent product for `count` rows from r on.
    void multiply_hidden(int64_t r, int64_t count, const float* before, const QParams& qparams, int64_t begin,
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
        a.x_zero_point = static_cast<int32_t>(qparams.zero_point);
        a.y = memory.gates;
        a.y_rows = y_offset;
        a.epilogue.type = OutputType::f32;
        a.epilogue.bias = memory.bias;
        a.epilogue.multiplier = memory.multiplier;
        a.epilogue.float_bias = layer_.ranges().per_row ? layer_.no_bias_.data() : layer_.recurrent_bias_.data();
        kernel.multiply(a, begin, end);
        if (layer_.ranges().per_row)
            rescale_rows(memory.gates, count, columns_, begin * kPanel, end * kPanel, memory.row_scale + r,
                         memory.row_zero + r, layer_.recurrent_sums_, layer_.recurrent_bias_);
    }

    const RecurrentLayer& layer_;
    const RecurrentSequence& sequence_;
    const int64_t* offsets_;
    const QuantizedInput input_;
    const bool backward_;
    const int64_t gates_, hidden_, blocks_, width_, columns_, batch_, y_stride_;
    float* const y_;
    const int64_t operand_stride_;
    const uint64_t run_;
    int64_t parts_ = 1, blocks_per_part_ = 1, group_rows_ = 0, group_offset_ = 0;
    float *h_[2] = {}, *c_ = nullptr, *low_ = nullptr, *high_ = nullptr, *x_gates_ = nullptr, *multiplier_ = nullptr;
    std::atomic<bool> failed_{false}, alone_{false};
    std::atomic<int> waits_in_vain_{0};
    std::vector<std::atomic<int64_t>> begun_;  // for each part, the first step that nobody has begun
    alignas(64) std::atomic<int64_t> done_{0};
};

void run_recurrent(const std::vector<const RecurrentLayer*>& layers, const RecurrentSequence& sequence) {
    require(layers.size() == 1 || layers.size() == 2, "a layer has one direction or two");
    const RecurrentLayer& first = *layers[0];
    const RecurrentLayer& last = *layers.back();
    require(first.cell() == last.cell() && first.hidden() == last.hidden() && first.inputs() == last.inputs() &&
                first.numbers() == last.numbers() && first.ranges() == last.ranges(),
            "both directions must be of the same kind and size");
    require(first.hidden() > 0, "there must be a hidden unit");
    const int64_t steps = sequence.steps;
    require(steps > 0, "there must be a step");
    std::vector<int64_t> offsets(static_cast<size_t>(steps) + 1, 0);
    for (int64_t t = 0; t < steps; ++t) {
        require(sequence.rows(t) >= 0 && (t == 0 || sequence.rows(t) <= sequence.rows(t - 1)),
                "batch sizes must not grow from step to step");
        offsets[static_cast<size_t>(t) + 1] = offsets[static_cast<size_t>(t)] + sequence.rows(t);
    }
    const int64_t rows = offsets.back(), batch = sequence.rows(0);
    if (batch == 0) return;
    const int64_t directions = static_cast<int64_t>(layers.size());
    prepare_output(sequence.y, static_cast<size_t>(rows * directions * first.hidden()) * sizeof(float));

    QuantizedInput input;
    if (first.in_bytes()) input = quantized_input(sequence.x, rows, first.inputs(), first.ranges());

    bool finite[2] = {true, true};
    // Two directions keep two or three threads busy without waiting for each other; more share each of them.
    const bool at_once = directions == 2 && num_threads() > 1 && num_threads() < 4;
    const auto run = [&](int64_t d) {
        const int64_t at = d * batch * first.hidden();
        RecurrentRun one(*layers[static_cast<size_t>(d)], sequence, offsets.data(), input, d, directions,
                         at_once ? 1 : num_threads());
        finite[d] = one(sequence.first_h + at, sequence.first_c != nullptr ? sequence.first_c + at : nullptr,
                        sequence.last_h + at, sequence.last_c != nullptr ? sequence.last_c + at : nullptr);
    };
    if (at_once) {
        parallel_for(2, 1, [&](int64_t begin, int64_t end) {
            for (int64_t d = begin; d < end; ++d) run(d);
        });
    } else {
        for (int64_t d = 0; d < directions; ++d) run(d);
    }
    require(finite[0] && finite[1],
            "the hidden state must be finite to be quantized, and became NaN or infinite on the way");
}

}  // namespace zeropoint
