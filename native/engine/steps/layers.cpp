// Linear layers and convolutions of integers with stored weights.
#include "engine/steps/binary.h"
#include "engine/steps/stored_layer.h"
#include "operators/fused_output.h"
#include "operators/map.h"

#include <optional>

namespace zeropoint {
namespace {

// Whether both have the same sizes and their elements in the same order; axes of one element lie anywhere.
bool lie_alike(const Tensor& a, const Tensor& b) {
    if (a.sizes != b.sizes) return false;
    for (size_t axis = 0; axis < a.sizes.size(); ++axis)
        if (a.sizes[axis] != 1 && a.strides[axis] != b.strides[axis]) return false;
    return true;
}

// Input 5 is a table that bytes of the result go through, or null; input 6 is what the result is then added to or
// multiplied with, or null. `swapped`: that is the first operand, and the result of the layer the second. `function`:
// of the float32 that a linear layer gives, before they are rounded to bytes.
class Layer : public StoredLayer {
protected:
    Layer(StepReader& r, int64_t weight_rank)
        : StoredLayer(r, weight_rank),
          table_(r.optional_table(5)),
          x_(read_scale(r, "input_")) {
        r.require_inputs(4, 7);
        const ElementType type = r.type("dtype");
        if (type == ElementType::f32) {
            y_.type = OutputType::f32;
            if (table_ != nullptr) r.fail("only a result of bytes can have a table");
            if (r.flag("relu")) y_.low = 0;
        } else {
            if (type != ElementType::u8 && type != ElementType::s8)
                r.fail("attribute 'dtype' must be uint8, int8 or float32");
            const auto [low, high] = range_of(type);
            const ByteScale scale = read_scale(r, "");
            y_.type = type == ElementType::u8 ? OutputType::u8 : OutputType::s8;
            y_.scale = scale.scale;
            y_.zero_point = scale.zero_point;
            if (scale.zero_point < low || scale.zero_point > high) r.fail("attribute 'zero_point' is out of range");
            y_.lo = static_cast<int32_t>(r.integer("low", low, high));
            y_.hi = static_cast<int32_t>(r.integer("high", y_.lo, high));
            y_.table = table_;
        }
        type_ = type;
        read_rounding(r);
        if (r.has("function")) read_function(r, weight_rank);
        if (r.inputs().size() <= kOther || r.inputs()[kOther] < 0) return;
        if (type == ElementType::f32 || stage_)
            r.fail("only a result of bytes, without a function, can be combined with another tensor");
        const std::string operation = r.text("then");
        if (operation != "add" && operation != "multiply") r.fail("attribute 'then' must be add or multiply");
        then_.emplace(r, operation == "add" ? BinaryOperation::add : BinaryOperation::multiply, "then_");
        swapped_ = r.flag("then_swapped");
    }

    // Gives the result, of these sizes and strides, and emits run(address of x, output, images). `images`: of a batch,
    // each computed by itself. `weights`: see Planner::emit_images.
    template <class Run>
    void emit(Planner& p, const Tensor& x, const Sizes& sizes, const Sizes& strides, int64_t images, const Run& run,
              double macs, double scratch, int64_t weights) const {
        const auto put = [&](const std::vector<Tensor>& tensors, const ImagesWork& work) {
            p.emit_images(tensors, images, work, macs, weights);
        };
        const Tensor shape{type_, sizes, strides, {}};
        Tensor other;
        if (then_) {
            other = p.byte_input(kOther);
            then_->require_fit(swapped_ ? other : shape, swapped_ ? shape : other);
        }
        if (!then_ || !lie_alike(shape, other)) {
            Tensor y = p.make(type_, sizes, strides);
            if (y.count() > 0) {
                p.needs_memory(0, scratch + (table_ != nullptr ? table_scratch(weight_.sizes[0]) : 0));
                put({x, y}, [this, run](void* const* at, int64_t n) { run(at[0], output_at(at[1]), n); });
            }
            if (then_) y = swapped_ ? then_->plan(p, other, y) : then_->plan(p, y, other);
            p.give(0, y);
            return;
        }
        const Tensor y = p.make_like(swapped_ ? other : shape, type_);
        // x is read until the last element has been written.
        if (x.place.buffer != other.place.buffer) p.take_over(y, other);
        p.give(0, y);
        if (y.count() == 0) return;
        p.needs_memory(0, scratch + combination_scratch(weight_.sizes[0]));
        put({x, other, y}, [this, run, args = then_->args(type_, swapped_)](void* const* at, int64_t n) {
            BinaryArgs then = args;
            then.b = at[1];
            LayerOutput out = output_at(at[2]);
            out.then = &then;
            run(at[0], out, n);
        });
    }

    LayerInput input_at(const void* x, IntType type) const { return {x, type, x_.scale, x_.zero_point}; }
    LayerOutput output_at(void* y) const {
        LayerOutput out = y_;
        out.y = y;
        if (stage_) out.function = &*stage_;
        return out;
    }

    const uint8_t* table_;
    ByteScale x_;
    LayerOutput y_;
    ElementType type_ = ElementType::u8;
    std::optional<FloatStage> stage_;

private:
    // A function of float32 between the product and the bytes, whose scale is then not that of the product.
    void read_function(StepReader& r, int64_t weight_rank) {
        const std::string name = r.text("function");
        const auto function = float_function_named(name);
        if (!function) r.fail("there is no function '" + name + "'");
        if (weight_rank != 2 || type_ == ElementType::f32 || table_ != nullptr)
            r.fail("only a linear layer to bytes, without a table, can have a function");
        stage_ = FloatStage{*function, r.scale("scale")};
        y_.scale = 1;
    }

    static constexpr size_t kOther = 6;
    std::optional<BytePair> then_;
    bool swapped_ = false;
};

// y = x w' + bias over the last axis; w is (outputs, inputs).
class Linear : public Layer {
public:
    explicit Linear(StepReader& r) : Layer(r, 2) {}

    void prepare() override {
        layer_ = linear_layer();
        if (stage_) stage_->prepare(y_.hi - y_.zero_point);
    }

    void plan(Planner& p) const override {
        p.runs("gemm");
        const Tensor x = p.contiguous(p.byte_input(0));
        require_zero_point(x, x_.zero_point);
        const int64_t outputs = weight_.sizes[0];
        const Sizes sizes = product_sizes(x, outputs, weight_.sizes[1]);
        const int64_t rows = count_of(sizes) / outputs, images = x.rank() > 1 && rows > 0 ? x.sizes[0] : 1;
        const auto run = [this, each = rows / images, type = int_type(x.type)](const void* from, const LayerOutput& y,
                                                                               int64_t some) {
            layer_->run(input_at(from, type), some * each, y);
        };
        emit(p, x, sizes, contiguous_strides(sizes), images, run,
             static_cast<double>(rows) * static_cast<double>(weight_.count()),
             LinearPlan::operand_bytes(weight_.sizes[1], rows),
             LinearPlan::bytes_read_again(weight_.bytes(), rows / images));
    }

private:
    std::unique_ptr<LinearLayer> layer_;
};

class Convolution : public Layer {
public:
    explicit Convolution(StepReader& r) : Layer(r, 5), geometry_(r, weight_.sizes) {}

    void prepare() override {
        layer_ = std::make_unique<ConvLayer>(weight_tensor(), geometry_.shape(), scales(), scale_.count(), bias(),
                                             rounding_);
    }

    void plan(Planner& p) const override {
        p.runs(geometry_.shape().is_depthwise() ? "depthwise" : "gemm");
        Tensor x = p.byte_input(0);
        require_zero_point(x, x_.zero_point);
        const ConvGeometry::Fit fit = geometry_.fit(p, x);
        const auto run = [this, in = fit.in, first = fit.channels_first,
                          type = int_type(x.type)](const void* from, const LayerOutput& y, int64_t images) {
            layer_->run(input_at(from, type), images, in, first, y);
        };
        const int64_t places = count_of({fit.sizes.begin() + 2, fit.sizes.end()});
        emit(p, x, fit.sizes, channels_inside_strides(fit.sizes), fit.images, run, fit.macs, fit.scratch,
             ConvPlan::bytes_read_again(geometry_.shape(), weight_.bytes(), places));
    }

private:
    ConvGeometry geometry_;
    std::unique_ptr<ConvLayer> layer_;
};

}  // namespace

void add_layer_steps(StepTable& table) { table.add({{"linear", made<Linear>}, {"conv", made<Convolution>}}); }

}  // namespace zeropoint
