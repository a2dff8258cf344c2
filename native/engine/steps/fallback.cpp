#include "engine/fallback.h"

#include "engine/step_table.h"

namespace zeropoint {
namespace {

// Attributes: `function`, the number of what computes it, and `numbers` for it.
class ForeignStep : public Step {
public:
    explicit ForeignStep(StepReader& r)
        : function_(r.foreign("function")),
          numbers_(r.sizes("numbers")),
          outputs_(r.outputs()) {}

    void plan(Planner& p) const override {
        std::vector<Tensor> inputs;
        std::vector<Place> places;
        for (size_t i = 0; i < p.inputs(); ++i) {
            inputs.push_back(p.dense(p.input(i)));
            places.push_back(inputs.back().place);
        }
        const std::vector<int64_t> numbers = p.integers(numbers_);
        std::vector<Tensor> outputs;
        for (const Tensor& y : function_.plan(inputs, numbers)) {
            outputs.push_back(p.make(y.type, y.sizes, y.strides));
            if (!outputs.back().is_dense()) throw PlanError("a result is not dense");
            places.push_back(outputs.back().place);
        }
        if (outputs.size() != outputs_)
            throw PlanError("it gives " + std::to_string(outputs.size()) + " results, not " + std::to_string(outputs_));
        for (size_t i = 0; i < outputs.size(); ++i) p.give(i, outputs[i]);
        p.emit(std::move(places),
               [this, inputs, numbers, outputs](void* const* at) { function_.run(inputs, numbers, outputs, at); });
    }

private:
    Foreign& function_;
    std::vector<Integer> numbers_;
    size_t outputs_;
};

}  // namespace

void add_fallback_steps(StepTable& table) { table.add({{"foreign", made<ForeignStep>}}); }

}  // namespace zeropoint
