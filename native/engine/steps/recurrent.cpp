// LSTM, GRU and RNN layers on float32 sequences. See operators/recurrent.h.
#include "operators/recurrent.h"

#include "engine/step_table.h"
#include "engine/steps/byte_tensors.h"

#include <algorithm>

namespace zeropoint {
namespace {

constexpr int64_t kMostLayers = 1024, kMostTimes = 1 << 24;

// Layers one behind the other. Inputs: x (times, batch, features), or with batch_first (batch, times, features), the
// first hidden state (layers * directions, batch, hidden), for an lstm the first cell state; and then for each
// direction of each layer the matrices from the input and from the hidden state, (gates * hidden, ...), each with its
// scales, zero points and bias: scales and zero points are null for floats, the bias may be. Outputs: y, as x, and the
// last states.
class Recurrent : public Step {
public:
    explicit Recurrent(StepReader& r)
        : cell_(cell_of(r, r.text("cell"))),
          layers_(r.integer("layers", 1, kMostLayers)),
          directions_(r.integer("directions", 1, 2)),
          batch_first_(r.flag("batch_first")),
          reduce_range_(r.flag("reduce_range")),
          type_(r.type("weight_dtype")),
          states_(cell_ == Cell::lstm ? 2 : 1) {
        if (type_ != ElementType::u8 && type_ != ElementType::s8 && type_ != ElementType::f16 &&
            type_ != ElementType::f32)
            r.fail("attribute 'weight_dtype' must be uint8, int8, float16 or float32");
        r.require_outputs(1 + states_);
        size_t input = 1 + states_;
        r.require_inputs(input + static_cast<size_t>(layers_ * directions_) * 2 * kPartsOfMatrix);
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
            cells_.push_back(std::make_unique<RecurrentLayer>(cell_, hidden_, matrices_[i].weight->sizes[1],
                                                              reduce_range_, matrices_[i].described(),
                                                              matrices_[i + 1].described()));
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
            if (batch > 0) emit(p, layer, x, y, first, last);
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
        constexpr double kGates = 1 << 19;  // of several steps at once, if they are fewer
        const double batch = static_cast<double>(x.size(1));
        const double width = static_cast<double>((hidden_ + kCellBlock - 1) / kCellBlock * kCellBlock);
        const double gates = std::max(batch * width * static_cast<double>(cell_gates(cell_)), kGates);
        const double floats = batch * (4 * width + 64) + 2 * gates;
        return static_cast<double>(directions_) * floats * sizeof(float) + static_cast<double>(x.count());
    }

    static void swap_first_axes(Tensor& x) {
        std::swap(x.sizes[0], x.sizes[1]);
        std::swap(x.strides[0], x.strides[1]);
    }

    void emit(Planner& p, int64_t layer, const Tensor& x, const Tensor& y, const std::vector<Tensor>& first,
              const std::vector<Tensor>& last) const {
        const int64_t batch = x.size(1);
        p.needs_memory(scratch_bytes(x));
        const auto of_layer = [&](const Tensor& state) {
            Place place = state.place;
            place.offset += layer * directions_ * batch * hidden_ * static_cast<int64_t>(sizeof(float));
            return place;
        };
        std::vector<Place> places{x.place, y.place};
        for (size_t i = 0; i < states_; ++i) {
            places.push_back(of_layer(first[i]));
            places.push_back(of_layer(last[i]));
        }
        const double products =
            static_cast<double>(directions_ * cell_gates(cell_) * hidden_) * static_cast<double>(x.size(2) + hidden_);
        p.emit(
            std::move(places),
            [this, layer, batch, steps = x.size(0)](void* const* at) {
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
                run_recurrent(both_[static_cast<size_t>(layer)], s);
            },
            products * static_cast<double>(x.size(0)) * static_cast<double>(batch));
    }

    Cell cell_;
    int64_t layers_, directions_;
    bool batch_first_, reduce_range_;
    ElementType type_;
    size_t states_;
    int64_t hidden_ = 0, features_ = 0;
    std::vector<Matrix> matrices_;  // for each direction of each layer: from the input, from the hidden state
    std::vector<std::unique_ptr<RecurrentLayer>> cells_;
    std::vector<std::vector<const RecurrentLayer*>> both_;  // the directions of each layer
};

}  // namespace

void add_recurrent_steps(StepTable& table) { table.add<Recurrent>("recurrent"); }

}  // namespace zeropoint
