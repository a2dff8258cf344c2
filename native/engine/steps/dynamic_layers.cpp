// Linear layers and convolutions of floats, which are quantized on the way by their own range; the result is float32.
// A call whose input is not finite fails.
#include "engine/steps/stored_layer.h"

namespace zeropoint {
namespace {

// y = x w' + bias over the last axis. per_token: each row has a range of its own. See LinearLayer::run_dynamic.
class LinearDynamic : public StoredLayer {
public:
    explicit LinearDynamic(StepReader& r)
        : StoredLayer(r, 2),
          reduce_range_(r.flag("reduce_range")),
          per_token_(r.flag("per_token")),
          relu_(r.flag("relu")) {
        r.require_inputs(4, 5);
    }

    void prepare() override { layer_ = linear_layer(); }

    void plan(Planner& p) const override {
        p.runs("gemm");
        const Tensor x = p.contiguous(p.typed_input(0, ElementType::f32));
        const int64_t outputs = weight_.sizes[0];
        const Tensor y = p.make(ElementType::f32, product_sizes(x, outputs, weight_.sizes[1]));
        p.give(0, y);
        const int64_t rows = y.count() / outputs;
        if (rows == 0) return;
        p.needs_memory(static_cast<double>(x.count()) + static_cast<double>(rows) * 3 * sizeof(float),
                       LinearPlan::operand_bytes(weight_.sizes[1], rows));
        p.emit(
            {x.place, y.place},
            [this, rows](void* const* at) {
                layer_->run_dynamic(static_cast<const float*>(at[0]), rows, static_cast<float*>(at[1]), reduce_range_,
                                    per_token_, relu_);
            },
            static_cast<double>(rows) * static_cast<double>(weight_.count()));
    }

private:
    bool reduce_range_, per_token_, relu_;
    std::unique_ptr<LinearLayer> layer_;
};

// See ConvLayer::run_dynamic.
class ConvDynamic : public StoredLayer {
public:
    explicit ConvDynamic(StepReader& r)
        : StoredLayer(r, 5),
          geometry_(r, weight_.sizes),
          reduce_range_(r.flag("reduce_range")) {
        r.require_inputs(4, 5);
    }

    void prepare() override {
        layer_ = std::make_unique<ConvLayer>(weight_tensor(), geometry_.shape(), scales(), scale_.count(), bias());
    }

    void plan(Planner& p) const override {
        p.runs(geometry_.shape().is_depthwise() ? "depthwise" : "gemm");
        Tensor x = p.typed_input(0, ElementType::f32);
        const ConvGeometry::Fit fit = geometry_.fit(p, x);
        const Tensor y = p.make(ElementType::f32, fit.sizes, channels_inside_strides(fit.sizes));
        p.give(0, y);
        if (fit.images == 0) return;
        p.needs_memory(static_cast<double>(x.count()), fit.scratch);
        p.emit(
            {x.place, y.place},
            [this, images = fit.images, in = fit.in, first = fit.channels_first](void* const* at) {
                layer_->run_dynamic(static_cast<const float*>(at[0]), images, in, first, static_cast<float*>(at[1]),
                                    reduce_range_);
            },
            fit.macs);
    }

private:
    ConvGeometry geometry_;
    bool reduce_range_;
    std::unique_ptr<ConvLayer> layer_;
};

}  // namespace

void add_dynamic_layer_steps(StepTable& table) {
    table.add<LinearDynamic>("linear_dynamic");
    table.add<ConvDynamic>("conv_dynamic");
}

}  // namespace zeropoint
