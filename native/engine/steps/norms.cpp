// Norms, softmax and slopes of 8-bit tensors. See operators/norms.h for the formulas.
#include "operators/norms.h"

#include "engine/step_table.h"
#include "engine/steps/byte_tensors.h"

#include <cmath>

namespace zeropoint {
namespace {

// From bytes with one scale to bytes of the same type with another.
class Norm : public Step {
protected:
    explicit Norm(StepReader& r) : x_(read_scale(r, "input_")), y_(read_scale(r, "")) { r.require_outputs(1); }

    // The input, dense: contiguous unless it is channels last.
    Tensor input(Planner& p) const {
        const Tensor& x = p.byte_input(0);
        require_zero_point(x, x_.zero_point);
        require_zero_point(x, y_.zero_point);
        return x.is_channels_last() ? x : p.contiguous(x);
    }
    NormTensor tensor(const Tensor& x, bool relu = false) const {
        NormTensor t;
        t.type = int_type(x.type);
        t.scale = x_.scale;
        t.zero_point = x_.zero_point;
        t.y_scale = y_.scale;
        t.y_zero_point = y_.zero_point;
        const auto [low, high] = range_of(x.type);
        t.lo = relu ? y_.zero_point : static_cast<int32_t>(low);
        t.hi = static_cast<int32_t>(high);
        return t;
    }
    static NormTensor at_places(NormTensor t, void* const* at) {
        t.x = at[0];
        t.y = at[1];
        return t;
    }
    // (N, C, ...)
    static NormShape shape_of(const Tensor& x) {
        if (x.rank() < 2) throw PlanError("an input of shape " + text_of(x.sizes) + " has no channels");
        NormShape shape;
        shape.images = x.size(0);
        shape.channels = x.size(1);
        shape.places = count_of({x.sizes.begin() + 2, x.sizes.end()});
        shape.channels_last = x.is_channels_last() && !x.is_contiguous();
        return shape;
    }

    ByteScale x_, y_;
};

// Stored floats, one for each channel; null where the step has none.
class Channels {
public:
    Channels(StepReader& r, size_t input, bool needed = false)
        : stored_(needed ? &r.constant(input, ElementType::f32, 1) : r.optional_constant(input, ElementType::f32, 1)) {}
    const float* for_channels(int64_t channels) const {
        if (stored_ == nullptr) return nullptr;
        if (stored_->count() != channels)
            throw PlanError(std::to_string(stored_->count()) + " numbers for " + std::to_string(channels) +
                            " channels");
        return reinterpret_cast<const float*>(stored_->data);
    }

private:
    const StoredTensor* stored_;
};

double read_eps(StepReader& r) {
    const double eps = r.number("eps");
    if (!(eps >= 0) || !std::isfinite(static_cast<float>(eps))) r.fail("attribute 'eps' must not be negative");
    return eps;
}

// Inputs: x, weight or null, bias or null, mean, variance.
class BatchNorm : public Norm {
public:
    explicit BatchNorm(StepReader& r)
        : Norm(r),
          weight_(r, 1),
          bias_(r, 2),
          mean_(r, 3, true),
          variance_(r, 4, true),
          eps_(static_cast<float>(read_eps(r))),
          relu_(r.flag("relu")) {
        r.require_inputs(5);
    }

    void plan(Planner& p) const override {
        p.runs("normalize");
        const Tensor x = input(p);
        const NormShape shape = shape_of(x);
        const Tensor y = p.make_like(x, x.type);
        p.give(0, y);
        const ChannelParams params{weight_.for_channels(shape.channels), bias_.for_channels(shape.channels)};
        const float *mean = mean_.for_channels(shape.channels), *variance = variance_.for_channels(shape.channels);
        if (y.count() == 0) return;
        p.emit({x.place, y.place}, [=, t = tensor(x, relu_), eps = eps_](void* const* at) {
            batch_norm(at_places(t, at), shape, params, mean, variance, eps);
        });
    }

private:
    Channels weight_, bias_, mean_, variance_;
    float eps_;
    bool relu_;
};

// Over the channels of a group; groups 0 are as many as there are channels. Inputs: x, weight or null, bias or null.
class GroupNorm : public Norm {
public:
    explicit GroupNorm(StepReader& r)
        : Norm(r),
          weight_(r, 1),
          bias_(r, 2),
          groups_(r.integer("groups", 0, kMostElements)),
          eps_(static_cast<float>(read_eps(r))) {
        r.require_inputs(3);
    }

    void plan(Planner& p) const override {
        p.runs("normalize");
        const Tensor x = input(p);
        const NormShape shape = shape_of(x);
        const int64_t groups = groups_ > 0 ? groups_ : std::max<int64_t>(shape.channels, 1);
        if (shape.channels % groups != 0)
            throw PlanError(std::to_string(groups) + " groups do not divide " + std::to_string(shape.channels) +
                            " channels");
        const Tensor y = p.make_like(x, x.type);
        p.give(0, y);
        const ChannelParams params{weight_.for_channels(shape.channels), bias_.for_channels(shape.channels)};
        if (y.count() == 0) return;
        p.emit({x.place, y.place}, [=, t = tensor(x), eps = eps_](void* const* at) {
            group_norm(at_places(t, at), shape, groups, params, eps);
        });
    }

private:
    Channels weight_, bias_;
    int64_t groups_;
    float eps_;
};

// Over the last axes, as many as the weight has elements. Inputs: x, weight or null, bias or null, flat.
class LayerNorm : public Norm {
public:
    explicit LayerNorm(StepReader& r)
        : Norm(r),
          weight_(r, 1),
          bias_(r, 2),
          axes_(r.integer("axes", 1, static_cast<int64_t>(kMostAxes))),
          eps_(static_cast<float>(read_eps(r))) {
        r.require_inputs(3);
    }

    void plan(Planner& p) const override {
        p.runs("normalize");
        const Tensor x = p.contiguous(input(p));
        if (x.rank() < axes_) throw PlanError("an input of shape " + text_of(x.sizes) + " has too few axes");
        const int64_t length = count_of({x.sizes.end() - axes_, x.sizes.end()});
        const ChannelParams params{weight_.for_channels(length), bias_.for_channels(length)};
        const Tensor y = p.make(x.type, x.sizes);
        p.give(0, y);
        if (y.count() == 0) return;
        const int64_t rows = y.count() / length;
        p.emit({x.place, y.place}, [=, t = tensor(x), eps = eps_](void* const* at) {
            layer_norm(at_places(t, at), rows, length, params, eps);
        });
    }

private:
    Channels weight_, bias_;
    int64_t axes_;
    float eps_;
};

class Softmax : public Norm {
public:
    explicit Softmax(StepReader& r) : Norm(r), axis_(r.integer("axis", -8, 7)) { r.require_inputs(1); }

    void plan(Planner& p) const override {
        p.runs("softmax");
        const Tensor x = input(p);
        const int64_t axis = x.rank() == 0 ? -1 : wrapped_axis(axis_, x.rank());
        const Tensor y = p.make_like(x, x.type);
        p.give(0, y);
        if (y.count() == 0) return;
        int64_t outer = 1, length = 1, inner = 1;
        bool passed = false;
        const bool inside = !x.is_contiguous();
        for (int64_t i = 0; i < x.rank(); ++i) {
            const int64_t d = !inside || i == 0 ? i : i == x.rank() - 1 ? 1 : i + 1;  // outermost in memory first
            if (d == axis) {
                length = x.size(d);
                passed = true;
            } else {
                (passed ? inner : outer) *= x.size(d);
            }
        }
        p.emit({x.place, y.place},
               [=, t = tensor(x)](void* const* at) { softmax(at_places(t, at), outer, length, inner); });
    }

private:
    int64_t axis_;
};

}  // namespace

void add_norm_steps(StepTable& table) {
    table.add({{"batch_norm", made<BatchNorm>},
               {"group_norm", made<GroupNorm>},
               {"layer_norm", made<LayerNorm>},
               {"softmax", made<Softmax>}});
}

}  // namespace zeropoint
