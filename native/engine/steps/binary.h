// Sums and products of two 8-bit tensors, one of which may be repeated: a step of its own, or the end of a layer.
#pragma once

#include "engine/steps/byte_tensors.h"
#include "operators/binary.h"

namespace zeropoint {

class BytePair {
public:
    // Attributes <prefix>a_scale, a_zero_point, b_scale, b_zero_point, scale, zero_point, relu; and, of a sum of uint8
    // as QNNPACK has it, rounding: tensors that differ in shape are added as without it.
    BytePair(StepReader& r, BinaryOperation operation, const std::string& prefix);

    // The result, and what is to be done for it. Throws PlanError if they do not fit.
    Tensor plan(Planner& p, Tensor a, Tensor b) const;
    // Throws PlanError unless both have one type, and the zero points are of it.
    void require_fit(const Tensor& a, const Tensor& b) const;
    // For kernels, without addresses; a and b have one shape. `swapped`: their a is our b, which gives the same bytes.
    BinaryArgs args(ElementType type, bool swapped) const;

private:
    BinaryTensors tensors(ElementType type, bool one_shape) const;

    BinaryOperation operation_;
    ByteScale a_, b_, y_;
    bool relu_;
    bool fixed_ = false;
};

}  // namespace zeropoint
