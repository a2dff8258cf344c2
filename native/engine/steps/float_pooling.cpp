// Pools, means and norms of float32 tensors. See operators/float_pooling.h: graphs compute them there, too.
#include "operators/float_pooling.h"

#include "engine/step_table.h"
#include "engine/steps/sliding.h"

namespace zeropoint {
namespace {

FloatPoolTensor at_places(FloatPoolTensor t, void* const* at) {
    t.x = static_cast<const float*>(at[0]);
    t.y = static_cast<float*>(at[1]);
    return t;
}

class FloatMaxPool : public Sliding {
public:
    explicit FloatMaxPool(StepReader& r) : Sliding(r, true) {}

    void plan(Planner& p) const override {
        const Pooled pooled = begin(p, p.typed_input(0, ElementType::f32));
        if (pooled.y.count() == 0) return;
        p.emit({pooled.images.x.place, pooled.y.place},
               [this, t = pooled.described<FloatPoolTensor>()](void* const* at) {
                   float_max_pool(at_places(t, at), windows_);
               });
    }
};

class FloatAveragePool : public Sliding {
public:
    explicit FloatAveragePool(StepReader& r)
        : Sliding(r, false),
          count_padding_(r.flag("count_include_pad")),
          divisor_(r.integer("divisor", -(1 << 30), 1 << 30)) {}

    void plan(Planner& p) const override {
        const Pooled pooled = begin(p, p.typed_input(0, ElementType::f32));
        if (pooled.y.count() == 0) return;
        p.emit({pooled.images.x.place, pooled.y.place},
               [this, t = pooled.described<FloatPoolTensor>()](void* const* at) {
                   float_average_pool(at_places(t, at), windows_, count_padding_, divisor_);
               });
    }

private:
    bool count_padding_;
    int64_t divisor_;
};

class FloatAdaptiveAveragePool : public Adaptive {
public:
    explicit FloatAdaptiveAveragePool(StepReader& r) : Adaptive(r) {}

    void plan(Planner& p) const override {
        const Pooled pooled = begin(p, p.typed_input(0, ElementType::f32));
        if (pooled.y.count() == 0) return;
        p.emit({pooled.images.x.place, pooled.y.place}, [t = pooled.described<FloatPoolTensor>()](void* const* at) {
            float_adaptive_average_pool(at_places(t, at));
        });
    }
};

// One number for each row along some axes, which go unless keepdim; none are all.
class OverAxes : public Step {
protected:
    using Function = void (*)(const float* x, float* y, int64_t rows, int64_t length);

    OverAxes(StepReader& r, Function function) : function_(function), keep_(r.flag("keepdim")) {
        r.require_inputs(1);
        r.require_outputs(1);
    }

    void plan_over(Planner& p, const std::vector<int64_t>& axes) const {
        const Tensor& given = p.typed_input(0, ElementType::f32);
        std::vector<bool> dropped(given.sizes.size(), axes.empty());
        for (const int64_t axis : axes) dropped[static_cast<size_t>(wrapped_axis(axis, given.rank()))] = true;
        Tensor rows = given;
        Sizes sizes;
        rows.sizes.clear();
        rows.strides.clear();
        int64_t length = 1;
        for (const bool last : {false, true})
            for (size_t i = 0; i < dropped.size(); ++i)
                if (dropped[i] == last) {
                    rows.sizes.push_back(given.sizes[i]);
                    rows.strides.push_back(given.strides[i]);
                    if (last) length *= given.sizes[i];
                }
        for (size_t i = 0; i < dropped.size(); ++i)
            if (!dropped[i] || keep_) sizes.push_back(dropped[i] ? 1 : given.sizes[i]);
        const Tensor x = p.contiguous(rows), y = p.make(ElementType::f32, sizes);
        p.give(0, y);
        if (y.count() == 0) return;
        p.emit({x.place, y.place}, [function = function_, count = y.count(), length](void* const* at) {
            function(static_cast<const float*>(at[0]), static_cast<float*>(at[1]), count, length);
        });
    }

private:
    Function function_;
    bool keep_;
};

template <void (*function)(const float*, float*, int64_t, int64_t)>
class OverChosen : public OverAxes {
public:
    explicit OverChosen(StepReader& r) : OverAxes(r, function), axes_(r.sizes("axes")) {}
    void plan(Planner& p) const override { plan_over(p, p.integers(axes_)); }

private:
    std::vector<Integer> axes_;
};

// Over the last axis.
class FloatNorm : public OverAxes {
public:
    explicit FloatNorm(StepReader& r) : OverAxes(r, float_norm) {}
    void plan(Planner& p) const override {
        if (p.input(0).rank() < 1) throw PlanError("there is no axis to sum over");
        plan_over(p, {-1});
    }
};

}  // namespace

void add_float_pooling_steps(StepTable& table) {
    table.add<FloatMaxPool>("float_max_pool");
    table.add<FloatAveragePool>("float_average_pool");
    table.add<FloatAdaptiveAveragePool>("float_adaptive_average_pool");
    table.add<OverChosen<float_mean>>("float_mean");
    table.add<OverChosen<float_sum>>("float_sum");
    table.add<FloatNorm>("float_norm");
}

}  // namespace zeropoint
