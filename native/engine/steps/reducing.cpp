// One number for each row along some axes: sums, means, products, variances, norms.
#include "engine/step_table.h"
#include "operators/float_pooling.h"

#include <cmath>

namespace zeropoint {
namespace {

// Over the axes that are listed, which go unless keepdim; none are all.
class OverAxes : public OneInput {
protected:
    explicit OverAxes(StepReader& r) : OneInput(r), keep_(r.flag("keepdim")) {}

    // Emits compute(x, y, rows, length) for rows that lie one behind the other.
    template <class T, class Compute>
    void plan_over(Planner& p, ElementType type, const std::vector<int64_t>& axes, Compute compute) const {
        const Tensor& given = p.typed_input(0, type);
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
        const Tensor x = p.contiguous(rows), y = p.make(type, sizes);
        p.give(0, y);
        if (y.count() == 0) return;
        p.emit({x.place, y.place}, [compute, count = y.count(), length](void* const* at) {
            compute(static_cast<const T*>(at[0]), static_cast<T*>(at[1]), count, length);
        });
    }

private:
    bool keep_;
};

template <void (*function)(const float*, float*, int64_t, int64_t)>
class OverChosen : public OverAxes {
public:
    explicit OverChosen(StepReader& r) : OverAxes(r), axes_(r.sizes("axes")) {}
    void plan(Planner& p) const override { plan_over<float>(p, ElementType::f32, p.integers(axes_), function); }

private:
    std::vector<Integer> axes_;
};

// Over the last axis, or those that are listed.
class FloatNorm : public OverAxes {
public:
    explicit FloatNorm(StepReader& r) : OverAxes(r), chosen_(r.has("axes")) {
        if (chosen_) axes_ = r.sizes("axes");
    }
    void plan(Planner& p) const override {
        if (!chosen_ && p.input(0).rank() < 1) throw PlanError("there is no axis to sum over");
        plan_over<float>(p, ElementType::f32, chosen_ ? p.integers(axes_) : Sizes{-1}, float_norm);
    }

private:
    bool chosen_;
    std::vector<Integer> axes_;
};

// Divided by what is left of the length without `correction`.
class FloatVariance : public OverAxes {
public:
    explicit FloatVariance(StepReader& r) : OverAxes(r), axes_(r.sizes("axes")), correction_(r.number("correction")) {
        if (!std::isfinite(correction_)) r.fail("attribute 'correction' must be finite");
    }
    void plan(Planner& p) const override {
        const auto compute = [correction = correction_](const float* x, float* y, int64_t rows, int64_t length) {
            float_variance(x, y, rows, length, correction);
        };
        plan_over<float>(p, ElementType::f32, p.integers(axes_), compute);
    }

private:
    std::vector<Integer> axes_;
    double correction_;
};

// Sums or products of int64, which wrap.
template <bool kSum>
class WholeNumbers : public OverAxes {
public:
    explicit WholeNumbers(StepReader& r) : OverAxes(r), axes_(r.sizes("axes")) {}
    void plan(Planner& p) const override {
        const auto compute = [](const int64_t* x, int64_t* y, int64_t rows, int64_t length) {
            for (int64_t row = 0; row < rows; ++row) {
                uint64_t all = kSum ? 0 : 1;
                for (int64_t i = 0; i < length; ++i) {
                    const uint64_t value = static_cast<uint64_t>(x[row * length + i]);
                    all = kSum ? all + value : all * value;
                }
                y[row] = static_cast<int64_t>(all);
            }
        };
        plan_over<int64_t>(p, ElementType::s64, p.integers(axes_), compute);
    }

private:
    std::vector<Integer> axes_;
};

}  // namespace

void add_reducing_steps(StepTable& table) {
    table.add({{"float_norm", made<FloatNorm>},
               {"float_variance", made<FloatVariance>},
               {"float_mean", made<OverChosen<float_mean>>},
               {"float_sum", made<OverChosen<float_sum>>},
               {"float_product", made<OverChosen<float_product>>},
               {"integer_sum", made<WholeNumbers<true>>},
               {"integer_product", made<WholeNumbers<false>>}});
}

}  // namespace zeropoint
