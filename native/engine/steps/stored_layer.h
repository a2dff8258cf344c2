// What linear layers and convolutions with stored weights share, whatever they multiply them with.
#pragma once

#include "engine/step_table.h"
#include "engine/steps/byte_tensors.h"
#include "operators/layers.h"

namespace zeropoint {

// Inputs from `first` on: weight, its scales and zero points (one, or one for each output channel), bias or null. The
// weight has its output channels first.
struct StoredWeight {
    StoredWeight(StepReader& r, size_t first, int64_t rank);
    // Attribute `rounding`, if there is one: that of another engine (operators/rounding.h).
    void read_rounding(StepReader& r) {
        if (r.has("rounding"))
            rounding_ = static_cast<Rounding>(r.integer("rounding", 0, static_cast<int64_t>(Rounding::onednn)));
    }

    WeightTensor weight_tensor() const {
        return {weight_.data, int_type(weight_.type), reinterpret_cast<const int32_t*>(zero_point_.data),
                zero_point_.count()};
    }
    const float* scales() const { return reinterpret_cast<const float*>(scale_.data); }
    const float* bias() const { return bias_ == nullptr ? nullptr : reinterpret_cast<const float*>(bias_->data); }
    std::unique_ptr<LinearLayer> linear_layer() const {
        return std::make_unique<LinearLayer>(weight_tensor(), weight_.sizes[0], weight_.sizes[1], scales(),
                                             scale_.count(), bias(), rounding_);
    }

    const StoredTensor& weight_;
    const StoredTensor& scale_;
    const StoredTensor& zero_point_;
    const StoredTensor* bias_;
    Rounding rounding_ = Rounding::zeropoint;
};

// Inputs: x, a stored weight, and what the kind of step adds.
class StoredLayer : public Step, protected StoredWeight {
protected:
    StoredLayer(StepReader& r, int64_t weight_rank) : StoredWeight(r, 1, weight_rank) { r.require_outputs(1); }
};

// The sizes of x w' over the last axis of x, w a matrix (outputs, inputs). Throws PlanError if they do not fit.
Sizes product_sizes(const Tensor& x, int64_t outputs, int64_t inputs);

// Convolutions over 1 to 3 axes, transposed ones too: how the weight (outputs, depth, height, width, inputs / groups)
// goes over the input.
class ConvGeometry {
public:
    ConvGeometry(StepReader& r, const Sizes& weight);

    const ConvShape& shape() const { return shape_; }

    // An input of certain sizes: where it lies, and the result.
    struct Fit {
        int64_t images = 0;
        Size3 in{1, 1, 1};
        bool channels_first = false;
        Sizes sizes;  // of the result, whose channels are innermost in memory
        double macs = 0;
        double scratch = 0;  // bytes that the layer takes while it runs
    };
    // Throws PlanError if it does not fit. x becomes a copy where it lies neither way.
    Fit fit(Planner& p, Tensor& x) const;

private:
    int64_t spatial_;
    ConvShape shape_;
};

}  // namespace zeropoint
