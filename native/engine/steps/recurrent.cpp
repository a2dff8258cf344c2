// LSTM, GRU and RNN layers on float32 sequences. See operators/recurrent.h.
#include "operators/recurrent.h"

#include "engine/step_table.h"
#include "engine/steps/byte_tensors.h"

#include <algorithm>
#include <stdexcept>

namespace zeropoint {
namespace {

constexpr int64_t kMostLayers = 1024, kMostTimes = 1 << 24;

// Layers one behind the other. Inputs: x (times, batch, features), or with batch_first (batch, times, features), the
// first hidden state (layers * directions, batch, hidden), for an lstm the first cell state; and then for each
// direction of each layer the matrices from the input and from the hidden state, (gates * hidden, ...), each with its
// scales, zero points and bias: scales and zero points are null for floats, the bias may be. At last there may be batch
// sizes, (times), int64: x is padded then, the longest sequence first, and y is zeros behind their ends. Outputs: y, as
// x, and the last states.
class Recurrent : public Step {
public:
    explicit Recurrent(StepReader& r)
        : cell_(cell_of(r, r.text("cell"))),
          layers_(r.integer("layers", 1, kMostLayers)),
          directions_(r.integer("directions", 1, 2)),
          batch_first_(r.flag("batch_first")),
          ranges_{r.flag("reduce_range"), r.has("per_token") && r.flag("per_token")},
          type_(r.type("weight_dtype")),
          states_(cell_ == Cell::lstm ? 2 : 1) {
        if (type_ != ElementType::u8 && type_ != ElementType::s8 && type_ != ElementType::f16 &&
            type_ != ElementType::f32)
            r.fail("attribute 'weight_dtype' must be uint8, int8, float16 or float32");
        r.require_outputs(1 + states_);
        size_t input = 1 + states_;
        sizes_input_ = input + static_cast<size_t>(layers_ * directions_) * 2 * kPartsOfMatrix;
        r.require_inputs(sizes_input_, sizes_input_ + 1);
        if (batch_first_ && r.inputs().size() > sizes_input_) r.fail("batch sizes are for sequences with times first");
        hidden_ = r.constant(input + kPartsOfMatrix, type_, 2).sizes[1];
        features_ = r.constant(input, type_, 2).sizes[1];
        if (hidden_ < 1 || features_ < 1) r.fail("a matrix is empty");
        for (int64_t layer = 0; layer < layers_; ++layer)
            for (int64_t direction = 0; direction < directions_; ++direction)
                for (const int64_t columns : {layer == 0 ? features_ : directions_ * hidden_, hidden_}) {
                    matrices_.emplace_back(r, input, type_, cell_gates(cell_) * hidden_, columns);
                    input += kPartsOfMatrix;
                }
    }

    void prepare() override {
        for (size_t i = 0; i < matrices_.size(); i += 2)
            cells_.push_back(std::make_unique<RecurrentLayer>(cell_, hidden_, matrices_[i].weight->sizes[1], ranges_,
                                                              matrices_[i].described(), matrices_[i + 1].described()));
        for (size_t i = 0; i < cells_.size(); i += static_cast<size_t>(directions_)) {
            both_.push_back({cells_[i].get()});
            if (directions_ == 2) both_.back().push_back(cells_[i + 1].get());
        }
    }

    void plan(Planner& p) const override {
        p.runs(type_ == ElementType::f32 ? "float_gemm" : type_ == ElementType::f16 ? "half_gemm" : "gemm");
        Tensor x = p.typed_input(0, ElementType::f32);
        if (x.rank() != 3 || x.size(2) != features_)
            throw PlanError("an input of shape " + text_of(x.sizes) + " must have three axes and " +
                            std::to_string(features_) + " features");
        if (batch_first_) swap_first_axes(x);
        x = p.contiguous(x);
        const bool is_padded = p.has_input(sizes_input_);
        Tensor sizes;
        if (is_padded) {
            sizes = p.contiguous(p.typed_input(sizes_input_, ElementType::s64));
            if (sizes.sizes != Sizes{x.size(0)})
                throw PlanError("batch sizes of shape " + text_of(sizes.sizes) + " must be one for each of " +
                                std::to_string(x.size(0)) + " steps");
        }
        const int64_t times = x.size(0), batch = x.size(1);
        if (times < 1 || times > kMostTimes)
            throw PlanError("a sequence of " + std::to_string(times) + " steps; there must be 1 to " +
                            std::to_string(kMostTimes));
        const Sizes state{layers_ * directions_, batch, hidden_};
        std::vector<Tensor> first, last;
        for (size_t i = 0; i < states_; ++i) {
            first.push_back(p.contiguous(p.typed_input(1 + i, ElementType::f32)));
            if (first[i].sizes != state)
                throw PlanError("a first state of shape " + text_of(first[i].sizes) + " must be " + text_of(state));
            last.push_back(p.make(ElementType::f32, state));
            p.give(1 + i, last[i]);
        }
        for (int64_t layer = 0; layer < layers_; ++layer) {
            const Tensor y = p.make(ElementType::f32, {times, batch, directions_ * hidden_});
            if (batch > 0 && is_padded)
                emit_padded(p, layer, x, y, sizes, first, last);
            else if (batch > 0)
                emit(p, layer, x, y, first, last);
            x = y;
        }
        if (batch_first_) swap_first_axes(x);
        p.give(0, x);
    }

private:
    static constexpr size_t kPartsOfMatrix = 4;

    struct Matrix {
        Matrix(StepReader& r, size_t input, ElementType type, int64_t rows, int64_t columns)
            : weight(&r.constant(input, type, 2)),
              scale(r.optional_constant(input + 1, ElementType::f32, 1)),
              zero_point(r.optional_constant(input + 2, ElementType::s32, 1)),
              bias(r.optional_constant(input + 3, ElementType::f32, 1)) {
            r.packs(input);
            if (weight->sizes != Sizes{rows, columns})
                r.fail("input " + std::to_string(input) + " must have shape " + text_of({rows, columns}) + ", it has " +
                       text_of(weight->sizes));
            const bool is_float = type == ElementType::f16 || type == ElementType::f32;
            if (is_float != (scale == nullptr) || is_float != (zero_point == nullptr))
                r.fail("8-bit weights need scales and zero points, floats have neither");
            if (bias != nullptr && bias->count() != rows)
                r.fail("input " + std::to_string(input + 3) + " must have " + std::to_string(rows) + " elements");
        }

        RecurrentWeight described() const {
            RecurrentWeight w;
            w.data = weight->data;
            w.numbers = weight->type == ElementType::f16   ? RecurrentNumbers::halves
                        : weight->type == ElementType::f32 ? RecurrentNumbers::floats
                                                           : RecurrentNumbers::bytes;
            if (bias != nullptr) w.bias = reinterpret_cast<const float*>(bias->data);
            if (w.numbers != RecurrentNumbers::bytes) return w;
            w.type = int_type(weight->type);
            w.zero_point = reinterpret_cast<const int32_t*>(zero_point->data);
            w.zero_points = zero_point->count();
            w.scale = reinterpret_cast<const float*>(scale->data);
            w.scales = scale->count();
            return w;
        }

        const StoredTensor *weight, *scale, *zero_point, *bias;
    };

    static Cell cell_of(const StepReader& r, const std::string& name) {
        if (name == "lstm") return Cell::lstm;
        if (name == "gru") return Cell::gru;
        if (name == "rnn_tanh") return Cell::tanh;
        if (name == "rnn_relu") return Cell::relu;
        r.fail("attribute 'cell' must be lstm, gru, rnn_tanh or rnn_relu");
    }

    // What a layer takes while it runs: states, operands and gates of each direction, its input as bytes.
    double scratch_bytes(const Tensor& x) const {
        const double together = static_cast<double>(gate_bytes()) / sizeof(float);
        const double batch = static_cast<double>(x.size(1));
        const double width = static_cast<double>((hidden_ + kCellBlock - 1) / kCellBlock * kCellBlock);
        const double gates = std::max(batch * width * static_cast<double>(cell_gates(cell_)), together);
        const double floats = batch * (4 * width + 64) + 2 * gates;
        const double of_rows =
            5 * static_cast<double>(x.size(0)) * batch + 3 * static_cast<double>(directions_) * batch;
        return (static_cast<double>(directions_) * floats + of_rows) * sizeof(float) + static_cast<double>(x.count());
    }

    // The same for each thread, where they take rows: gates, and some rows of a float input once more.
    double thread_bytes(const Tensor& x) const {
        return 2 * static_cast<double>(gate_bytes()) + static_cast<double>(x.count()) * sizeof(float);
    }

    static void swap_first_axes(Tensor& x) {
        std::swap(x.sizes[0], x.sizes[1]);
        std::swap(x.strides[0], x.strides[1]);
    }

    // x, y, and the first and last states of a layer.
    std::vector<Place> places_of(int64_t layer, const Tensor& x, const Tensor& y, const std::vector<Tensor>& first,
                                 const std::vector<Tensor>& last) const {
        const auto of_layer = [&](const Tensor& state) {
            Place place = state.place;
            place.offset += layer * directions_ * x.size(1) * hidden_ * static_cast<int64_t>(sizeof(float));
            return place;
        };
        std::vector<Place> places{x.place, y.place};
        for (size_t i = 0; i < states_; ++i) {
            places.push_back(of_layer(first[i]));
            places.push_back(of_layer(last[i]));
        }
        return places;
    }

    double products_of(const Tensor& x) const {
        return static_cast<double>(directions_ * cell_gates(cell_) * hidden_) *
               static_cast<double>(x.size(2) + hidden_) * static_cast<double>(x.size(0) * x.size(1));
    }

    // Rows that belong to sequences are put together before, and back to their places behind.
    void emit_padded(Planner& p, int64_t layer, const Tensor& x, const Tensor& y, const Tensor& sizes,
                     const std::vector<Tensor>& first, const std::vector<Tensor>& last) const {
        const int64_t batch = x.size(1), times = x.size(0), width = x.size(2), units = y.size(2);
        p.needs_memory(scratch_bytes(x), thread_bytes(x));
        std::vector<Place> places = places_of(layer, x, y, first, last);
        const size_t more = places.size();
        places.push_back(sizes.place);
        places.push_back(p.scratch(x.count() * static_cast<int64_t>(sizeof(float))));
        places.push_back(p.scratch(y.count() * static_cast<int64_t>(sizeof(float))));
        p.emit(
            std::move(places),
            [this, layer, batch, times, width, units, more](void* const* at) {
                const int64_t* size = static_cast<const int64_t*>(at[more]);
                const float* from = static_cast<const float*>(at[0]);
                float* to = static_cast<float*>(at[1]);
                float* rows = static_cast<float*>(at[more + 1]);
                float* results = static_cast<float*>(at[more + 2]);
                int64_t steps = 0;
                for (; steps < times && size[steps] > 0; ++steps) {
                    if (size[steps] > (steps == 0 ? batch : size[steps - 1]))
                        throw std::invalid_argument("batch sizes must not grow, nor be more than the batch");
                    rows = std::copy_n(from + steps * batch * width, size[steps] * width, rows);
                }
                if (steps == 0 || size[0] != batch) throw std::invalid_argument("every sequence must have a step");
                RecurrentSequence s = sequence(at, batch, steps);
                s.batch_sizes = size;
                s.x = static_cast<const float*>(at[more + 1]);
                s.y = results;
                run_recurrent(both_[static_cast<size_t>(layer)], s);
                std::fill_n(to, times * batch * units, 0.0f);
                for (int64_t t = 0; t < steps; results += size[t] * units, ++t)
                    std::copy_n(results, size[t] * units, to + t * batch * units);
            },
            products_of(x));
    }

    RecurrentSequence sequence(void* const* at, int64_t batch, int64_t steps) const {
        RecurrentSequence s;
        s.x = static_cast<const float*>(at[0]);
        s.batch = batch;
        s.steps = steps;
        s.y = static_cast<float*>(at[1]);
        s.first_h = static_cast<const float*>(at[2]);
        s.last_h = static_cast<float*>(at[3]);
        if (cell_ == Cell::lstm) {
            s.first_c = static_cast<const float*>(at[4]);
            s.last_c = static_cast<float*>(at[5]);
        }
        return s;
    }

    void emit(Planner& p, int64_t layer, const Tensor& x, const Tensor& y, const std::vector<Tensor>& first,
              const std::vector<Tensor>& last) const {
        p.needs_memory(scratch_bytes(x), thread_bytes(x));
        p.emit(
            places_of(layer, x, y, first, last),
            [this, layer, batch = x.size(1), steps = x.size(0)](void* const* at) {
                run_recurrent(both_[static_cast<size_t>(layer)], sequence(at, batch, steps));
            },
            products_of(x));
    }

    Cell cell_;
    int64_t layers_, directions_;
    bool batch_first_;
    RecurrentRanges ranges_;
    ElementType type_;
    size_t states_, sizes_input_ = 0;
    int64_t hidden_ = 0, features_ = 0;
    std::vector<Matrix> matrices_;  // for each direction of each layer: from the input, from the hidden state
    std::vector<std::unique_ptr<RecurrentLayer>> cells_;
    std::vector<std::vector<const RecurrentLayer*>> both_;  // the directions of each layer
};

}  // namespace

void add_recurrent_steps(StepTable& table) { table.add({{"recurrent", made<Recurrent>}}); }

}  // namespace zeropoint
