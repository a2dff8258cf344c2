// Bounds and norms of float32 tensors. NaN stays NaN.
#include "cpu/threads.h"
#include "engine/step_table.h"

#include <algorithm>
#include <cmath>

namespace zeropoint {
namespace {

constexpr int64_t kGrain = 16384;  // elements that are worth a thread

// y = min(max(x, low), high), of which either may be missing.
class FloatClamp : public Step {
public:
    explicit FloatClamp(StepReader& r) {
        r.require_inputs(1);
        r.require_outputs(1);
        if (r.has("low")) low_ = static_cast<float>(r.number("low"));
        if (r.has("high")) high_ = static_cast<float>(r.number("high"));
    }

    void plan(Planner& p) const override {
        const Tensor x = p.dense(p.typed_input(0, ElementType::f32));
        const Tensor y = p.make_like(x, x.type, true);
        p.give(0, y);
        if (x.count() == 0) return;
        p.emit({x.place, y.place}, [n = x.count(), low = low_, high = high_](void* const* at) {
            const float* from = static_cast<const float*>(at[0]);
            float* to = static_cast<float*>(at[1]);
            parallel_for(n, kGrain, [&](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i) {
                    const float v = from[i] < low ? low : from[i];
                    to[i] = v > high ? high : v;
                }
            });
        });
    }

private:
    float low_ = -std::numeric_limits<float>::infinity(), high_ = std::numeric_limits<float>::infinity();
};

// y = sqrt(sum(x^2)) over the last axis, which stays with one element if keepdim. Summed in float64 and rounded once,
// so that it is the same on every CPU; PyTorch sums in float32 and is within a few units in the last place of it.
class FloatNorm : public Step {
public:
    explicit FloatNorm(StepReader& r) : keep_(r.flag("keepdim")) {
        r.require_inputs(1);
        r.require_outputs(1);
    }

    void plan(Planner& p) const override {
        const Tensor x = p.contiguous(p.typed_input(0, ElementType::f32));
        if (x.rank() < 1) throw PlanError("there is no axis to sum over");
        const int64_t length = x.sizes.back();
        Sizes sizes = x.sizes;
        sizes.pop_back();
        if (keep_) sizes.push_back(1);
        const Tensor y = p.make(ElementType::f32, sizes);
        p.give(0, y);
        if (y.count() == 0) return;
        p.emit({x.place, y.place}, [length, rows = y.count()](void* const* at) {
            const float* from = static_cast<const float*>(at[0]);
            float* to = static_cast<float*>(at[1]);
            parallel_for(rows, std::max<int64_t>(1, kGrain / std::max<int64_t>(length, 1)),
                         [&](int64_t begin, int64_t end) {
                             for (int64_t row = begin; row < end; ++row) {
                                 double sum = 0;
                                 for (const float* v = from + row * length; v < from + (row + 1) * length; ++v)
                                     sum += static_cast<double>(*v) * static_cast<double>(*v);
                                 to[row] = static_cast<float>(std::sqrt(sum));
                             }
                         });
        });
    }

private:
    bool keep_;
};

}  // namespace

void add_float_steps(StepTable& table) {
    table.add<FloatClamp>("float_clamp");
    table.add<FloatNorm>("float_norm");
}

}  // namespace zeropoint
