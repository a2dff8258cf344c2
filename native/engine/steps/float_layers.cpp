// Linear layers and convolutions of float32 with stored weights. See operators/float_layers.h: graphs compute them
// there, too.
#include "operators/float_layers.h"

#include "cpu/threads.h"
#include "engine/step_table.h"
#include "engine/steps/stored_layer.h"

#include <memory>

namespace zeropoint {
namespace {

// Inputs: x, weight with its output channels first, bias or null.
class FloatLayer : public Step {
protected:
    FloatLayer(StepReader& r, int64_t weight_rank)
        : weight_(r.constant(1, ElementType::f32, weight_rank)),
          bias_(r.optional_constant(2, ElementType::f32, 1)) {
        r.require_inputs(3);
        r.require_outputs(1);
        for (const int64_t n : weight_.sizes)
            if (n < 1) r.fail("a weight of shape " + text_of(weight_.sizes) + " is empty");
        if (bias_ != nullptr && bias_->count() != weight_.sizes[0])
            r.fail("a bias of " + std::to_string(bias_->count()) + " for " + std::to_string(weight_.sizes[0]) +
                   " output channels");
    }

    std::unique_ptr<FloatConvLayer> packed(const ConvShape& shape) const {
        return std::make_unique<FloatConvLayer>(reinterpret_cast<const float*>(weight_.data), shape,
                                                bias_ == nullptr ? nullptr
                                                                 : reinterpret_cast<const float*>(bias_->data));
    }
    void emit(Planner& p, const Tensor& x, const Tensor& y, int64_t images, const Size3& in, const ConvShape& shape,
              double macs) const {
        p.needs_memory(FloatConvLayer::scratch_bytes(shape) * num_threads());
        p.emit(
            {x.place, y.place},
            [this, images, in](void* const* at) {
                layer_->run(static_cast<const float*>(at[0]), images, in, static_cast<float*>(at[1]));
            },
            macs);
    }

    const StoredTensor& weight_;
    const StoredTensor* bias_;
    std::unique_ptr<FloatConvLayer> layer_;
};

// y = x w' + bias over the last axis; w is (outputs, inputs).
class FloatLinear : public FloatLayer {
public:
    explicit FloatLinear(StepReader& r) : FloatLayer(r, 2) {}

    void prepare() override { layer_ = packed(shape()); }

    void plan(Planner& p) const override {
        p.runs("float_gemm");
        const Tensor x = p.contiguous(p.typed_input(0, ElementType::f32));
        const Tensor y = p.make(ElementType::f32, product_sizes(x, weight_.sizes[0], weight_.sizes[1]));
        p.give(0, y);
        const int64_t rows = y.count() / weight_.sizes[0];
        if (rows == 0) return;
        emit(p, x, y, rows, {1, 1, 1}, shape(), static_cast<double>(rows) * static_cast<double>(weight_.count()));
    }

private:
    ConvShape shape() const { return linear_shape(weight_.sizes[0], weight_.sizes[1]); }
};

class FloatConvolution : public FloatLayer {
public:
    explicit FloatConvolution(StepReader& r) : FloatLayer(r, 5), geometry_(r, weight_.sizes) {}

    void prepare() override { layer_ = packed(geometry_.shape()); }

    void plan(Planner& p) const override {
        p.runs(geometry_.shape().is_depthwise() ? "float_depthwise" : "float_gemm");
        Tensor x = p.typed_input(0, ElementType::f32);
        const ConvGeometry::Fit fit = geometry_.fit(p, x);
        x = p.channels_inside(x);
        const Tensor y = p.make(ElementType::f32, fit.sizes, channels_inside_strides(fit.sizes));
        p.give(0, y);
        if (fit.images > 0) emit(p, x, y, fit.images, fit.in, geometry_.shape(), fit.macs);
    }

private:
    ConvGeometry geometry_;
};

}  // namespace

void add_float_layer_steps(StepTable& table) {
    table.add({{"float_linear", made<FloatLinear>}, {"float_conv", made<FloatConvolution>}});
}

}  // namespace zeropoint
