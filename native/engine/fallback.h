// Steps that something outside the engine computes: PyTorch, for operators that no step does. They cannot be saved.
#pragma once

#include "engine/tensor.h"

namespace zeropoint {

class Foreign {
public:
    virtual ~Foreign() = default;
    // What it gives for such inputs: types, sizes and strides, each dense. Throws PlanError if they do not fit.
    virtual std::vector<Tensor> plan(const std::vector<Tensor>& inputs, const std::vector<int64_t>& numbers) = 0;
    // `at` has the addresses of the inputs, then those of the outputs.
    virtual void run(const std::vector<Tensor>& inputs, const std::vector<int64_t>& numbers,
                     const std::vector<Tensor>& outputs, void* const* at) = 0;
};

}  // namespace zeropoint
