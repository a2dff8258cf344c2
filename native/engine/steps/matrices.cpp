// Functions of small matrices, the last two axes of tensors. See operators/matrices.h: graphs compute them there, too.
#include "operators/matrices.h"
#include "engine/step_table.h"

#include <stdexcept>

namespace zeropoint {
namespace {

class MatrixStep : public Step {
public:
    explicit MatrixStep(StepReader& r) : function_(r.text("function")) {
        try {
            traits_ = matrix_traits(function_);
        } catch (const std::invalid_argument& error) {
            r.fail(error.what());
        }
        r.require_inputs(traits_.takes_b ? 2 : 1);
        r.require_outputs(1);
    }

    void plan(Planner& p) const override {
        const Tensor a = p.contiguous(p.typed_input(0, ElementType::f32));
        const size_t axes = a.sizes.size();
        if (axes < 2) throw PlanError("matrices have two axes");
        MatrixSizes sizes{a.sizes[axes - 2], a.sizes[axes - 1], 0};
        if (traits_.square && sizes.rows != sizes.columns)
            throw PlanError("matrices of " + text_of(a.sizes) + " are not square");
        Sizes batch(a.sizes.begin(), a.sizes.end() - 2);
        Tensor b = a;
        if (traits_.takes_b) {
            b = p.contiguous(p.typed_input(1, ElementType::f32));
            const bool fits = b.sizes.size() == axes && std::equal(a.sizes.begin(), a.sizes.end() - 1, b.sizes.begin());
            if (!fits) throw PlanError("matrices of " + text_of(b.sizes) + " do not fit those of " + text_of(a.sizes));
            sizes.others = b.sizes[axes - 1];
        }
        const MatrixResult result = matrix_result(function_, sizes);
        const int64_t count = count_of(batch);
        for (int axis = 0; axis < result.axes; ++axis) batch.push_back(result.sizes[static_cast<size_t>(axis)]);
        const Tensor y = p.make(ElementType::f32, batch);
        p.give(0, y);
        if (y.count() == 0) return;
        p.emit({a.place, b.place, y.place}, [function = function_, count, sizes](void* const* at) {
            matrix_function(function, static_cast<const float*>(at[0]), static_cast<const float*>(at[1]),
                            static_cast<float*>(at[2]), count, sizes);
        });
    }

private:
    std::string function_;
    MatrixTraits traits_{};
};

}  // namespace

void add_matrix_steps(StepTable& table) { table.add({{"matrices", made<MatrixStep>}}); }

}  // namespace zeropoint
