// Linear layers and convolutions of integers with stored weights.
#include "engine/steps/stored_layer.h"

namespace zeropoint {
namespace {

// The last input is a table that bytes of the result go through, or null.
class Layer : public StoredLayer {
protected:
    Layer(StepReader& r, int64_t weight_rank)
        : StoredLayer(r, weight_rank),
          table_(r.optional_table(5)),
          x_(read_scale(r, "input_")) {
        r.require_inputs(4, 6);
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
    }

    LayerInput input_at(const void* x, IntType type) const { return {x, type, x_.scale, x_.zero_point}; }
    LayerOutput output_at(void* y) const {
        LayerOutput out = y_;
        out.y = y;
        return out;
    }

    const uint8_t* table_;
    ByteScale x_;
    LayerOutput y_;
    ElementType type_ = ElementType::u8;
};

// y = x w' + bias over the last axis; w is (outputs, inputs).
class Linear : public Layer {
public:
    explicit Linear(StepReader& r) : Layer(r, 2) {}

    void prepare() override { layer_ = linear_layer(); }

    void plan(Planner& p) const override {
        const Tensor x = p.contiguous(p.byte_input(0));
        require_zero_point(x, x_.zero_point);
        const int64_t outputs = weight_.sizes[0];
        const Tensor y = p.make(type_, product_sizes(x, outputs, weight_.sizes[1]));
        p.give(0, y);
        const int64_t rows = y.count() / outputs;
        if (rows == 0) return;
        p.emit(
            {x.place, y.place},
            [this, rows, type = int_type(x.type)](void* const* at) {
                layer_->run(input_at(at[0], type), rows, output_at(at[1]));
            },
            static_cast<double>(rows) * static_cast<double>(weight_.count()));
    }

private:
    std::unique_ptr<LinearLayer> layer_;
};

class Convolution : public Layer {
public:
    explicit Convolution(StepReader& r) : Layer(r, 5), geometry_(r, weight_.sizes) {}

    void prepare() override {
        layer_ = std::make_unique<ConvLayer>(weight_tensor(), geometry_.shape(), scales(), scale_.count(), bias());
    }

    void plan(Planner& p) const override {
        Tensor x = p.byte_input(0);
        require_zero_point(x, x_.zero_point);
        const ConvGeometry::Fit fit = geometry_.fit(p, x);
        const Tensor y = p.make(type_, fit.sizes, channels_inside_strides(fit.sizes));
        p.give(0, y);
        if (fit.images == 0) return;
        p.needs_memory(fit.scratch);
        p.emit(
            {x.place, y.place},
            [this, images = fit.images, in = fit.in, first = fit.channels_first, type = int_type(x.type)](
                void* const* at) { layer_->run(input_at(at[0], type), images, in, first, output_at(at[1])); },
            fit.macs);
    }

private:
    ConvGeometry geometry_;
    std::unique_ptr<ConvLayer> layer_;
};

}  // namespace

void add_layer_steps(StepTable& table) {
    table.add<Linear>("linear");
    table.add<Convolution>("conv");
}

}  // namespace zeropoint
