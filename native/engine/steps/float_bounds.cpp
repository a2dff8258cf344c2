// Bounds and thresholds of float32 tensors. NaN stays NaN.
#include "cpu/machine.h"
#include "cpu/threads.h"
#include "engine/step_table.h"

#include <algorithm>
#include <cmath>

namespace zeropoint {
namespace {

constexpr int64_t kGrain = worth_elements(4);

// y = min(max(x, low), high), of which either may be missing.
class FloatClamp : public OneInput {
public:
    explicit FloatClamp(StepReader& r) : OneInput(r) {
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

// y = x, but `value` where x is not above the threshold.
class FloatThreshold : public OneInput {
public:
    explicit FloatThreshold(StepReader& r)
        : OneInput(r),
          threshold_(static_cast<float>(r.number("threshold"))),
          value_(static_cast<float>(r.number("value"))) {}

    void plan(Planner& p) const override {
        const Tensor x = p.dense(p.typed_input(0, ElementType::f32));
        const Tensor y = p.make_like(x, x.type, true);
        p.give(0, y);
        if (x.count() == 0) return;
        p.emit({x.place, y.place}, [n = x.count(), threshold = threshold_, value = value_](void* const* at) {
            const float* from = static_cast<const float*>(at[0]);
            float* to = static_cast<float*>(at[1]);
            parallel_for(n, kGrain, [&](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i) to[i] = from[i] <= threshold ? value : from[i];
            });
        });
    }

private:
    float threshold_, value_;
};

}  // namespace

void add_float_steps(StepTable& table) {
    table.add({{"float_clamp", made<FloatClamp>}, {"float_threshold", made<FloatThreshold>}});
}

}  // namespace zeropoint
