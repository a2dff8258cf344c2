// Pools, means and norms of float32 tensors. See operators/float_pooling.h: graphs compute them there, too.
#include "operators/float_pooling.h"

#include "engine/step_table.h"
#include "engine/steps/pooling_windows.h"

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

}  // namespace

void add_float_pooling_steps(StepTable& table) {
    table.add({{"float_max_pool", made<FloatMaxPool>},
               {"float_average_pool", made<FloatAveragePool>},
               {"float_adaptive_average_pool", made<FloatAdaptiveAveragePool>}});
}

}  // namespace zeropoint
