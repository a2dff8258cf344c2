// Linear layers and convolutions of floats, which are quantized on the way by their own range; the result is float32.
// A call whose input is not finite fails.
#include "engine/steps/stored_layer.h"
#include "operators/float_stage.h"
#include "operators/map.h"

#include <memory>
#include <optional>
#include <vector>

namespace zeropoint {
namespace {

// y = x w' + bias over the last axis, for one stored weight or several, each with an output: x is quantized once for
// all of them. per_token: each row has a range of its own. See quantize_rows(). `function`: of every result.
class LinearDynamic : public Step {
public:
    explicit LinearDynamic(StepReader& r)
        : reduce_range_(r.flag("reduce_range")),
          per_token_(r.flag("per_token")),
          relu_(r.flag("relu")) {
        const size_t layers = r.outputs();
        if (layers == 0) r.fail("there must be an output");
        r.require_inputs(layers == 1 ? 4 : 1 + 4 * layers, 1 + 4 * layers);
        for (size_t i = 0; i < layers; ++i) {
            weights_.emplace_back(r, 1 + 4 * i, 2);
            weights_[i].read_rounding(r);
            if (weights_[i].weight_.sizes[1] != weights_[0].weight_.sizes[1])
                r.fail("weights of " + text_of(weights_[0].weight_.sizes) + " and " +
                       text_of(weights_[i].weight_.sizes) + " do not have the same inputs");
        }
        if (!r.has("function")) return;
        const std::string name = r.text("function");
        const auto function = float_function_named(name);
        if (!function) r.fail("there is no function '" + name + "'");
        if (relu_) r.fail("a layer has a ReLU or a function, not both");
        stage_ = FloatStage{*function};
    }

    void prepare() override {
        for (const StoredWeight& weight : weights_) layers_.push_back(weight.linear_layer());
    }

    void plan(Planner& p) const override {
        p.runs("gemm");
        const Tensor x = p.contiguous(p.typed_input(0, ElementType::f32));
        const int64_t inputs = weights_[0].weight_.sizes[1];
        std::vector<Place> places{x.place};
        int64_t rows = 0;
        double macs = 0;
        for (size_t i = 0; i < weights_.size(); ++i) {
            const int64_t outputs = weights_[i].weight_.sizes[0];
            const Tensor y = p.make(ElementType::f32, product_sizes(x, outputs, inputs));
            p.give(i, y);
            places.push_back(y.place);
            rows = y.count() / outputs;
            macs += static_cast<double>(rows) * static_cast<double>(weights_[i].weight_.count());
        }
        if (rows == 0) return;
        p.needs_memory(static_cast<double>(x.count()) + static_cast<double>(rows) * 3 * sizeof(float),
                       LinearPlan::operand_bytes(inputs, rows));
        p.emit(
            places,
            [this, rows, inputs](void* const* at) {
                const DynamicRows x = quantize_rows("linear_dynamic", static_cast<const float*>(at[0]), rows, inputs,
                                                    reduce_range_, per_token_);
                for (size_t i = 0; i < layers_.size(); ++i)
                    layers_[i]->run(x, static_cast<float*>(at[1 + i]), relu_, stage_ ? &*stage_ : nullptr);
            },
            macs);
    }

private:
    bool reduce_range_, per_token_, relu_;
    std::vector<StoredWeight> weights_;
    std::optional<FloatStage> stage_;
    std::vector<std::unique_ptr<LinearLayer>> layers_;
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
    table.add({{"linear_dynamic", made<LinearDynamic>}, {"conv_dynamic", made<ConvDynamic>}});
}

}  // namespace zeropoint
