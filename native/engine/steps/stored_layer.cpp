#include "engine/steps/stored_layer.h"

#include <algorithm>

namespace zeropoint {
namespace {

constexpr int64_t kMostGeometry = 1 << 15;  // kernel, stride, padding, dilation
constexpr int64_t kFreePhases = 256;        // of a transposed convolution; more only with as many kernel positions

bool lies_channels_inside(const Tensor& x) {
    const Sizes strides = channels_inside_strides(x.sizes);
    for (size_t axis = 0; axis < x.sizes.size(); ++axis)
        if (x.sizes[axis] != 1 && x.strides[axis] != strides[axis]) return false;
    return true;
}

}  // namespace

StoredWeight::StoredWeight(StepReader& r, size_t first, int64_t rank)
    : weight_(r.constant(first, r.byte_type("weight_dtype"), rank)),
      scale_(r.constant(first + 1, ElementType::f32, 1)),
      zero_point_(r.constant(first + 2, ElementType::s32, 1)),
      bias_(r.optional_constant(first + 3, ElementType::f32, 1)) {
    r.packs(first);
    for (const int64_t n : weight_.sizes)
        if (n < 1) r.fail("a weight of shape " + text_of(weight_.sizes) + " is empty");
    const int64_t n = weight_.sizes[0];
    for (const StoredTensor* t : {&scale_, &zero_point_})
        if (t->count() != 1 && t->count() != n)
            r.fail(std::to_string(t->count()) + " scales or zero points for " + std::to_string(n) + " output channels");
    if (bias_ != nullptr && bias_->count() != n)
        r.fail("a bias of " + std::to_string(bias_->count()) + " for " + std::to_string(n) + " output channels");
}

Sizes product_sizes(const Tensor& x, int64_t outputs, int64_t inputs) {
    if (x.rank() < 1 || x.sizes.back() != inputs)
        throw PlanError("an input of shape " + text_of(x.sizes) + " does not fit a weight of " +
                        text_of({outputs, inputs}));
    Sizes sizes = x.sizes;
    sizes.back() = outputs;
    return sizes;
}

ConvGeometry::ConvGeometry(StepReader& r, const Sizes& weight) : spatial_(r.integer("spatial", 1, 3)) {
    shape_.groups = r.integer("groups", 1, kMostElements);
    shape_.out_channels = weight[0];
    shape_.transposed = r.flag("transposed");
    if (shape_.out_channels % shape_.groups != 0 || weight[4] > kMostElements / shape_.groups)
        r.fail("groups do not divide the channels");
    shape_.in_channels = weight[4] * shape_.groups;
    const auto stride = r.integers("stride", 3, 1, kMostGeometry), padding = r.integers("padding", 3, 0, kMostGeometry),
               dilation = r.integers("dilation", 3, 1, kMostGeometry),
               more = r.integers("output_padding", 3, 0, kMostGeometry);
    for (size_t i = 0; i < 3; ++i) {
        shape_.kernel[i] = weight[i + 1];
        shape_.stride[i] = stride[i];
        shape_.padding[i] = padding[i];
        shape_.dilation[i] = dilation[i];
        shape_.output_padding[i] = more[i];
        if (shape_.kernel[i] > kMostGeometry) r.fail("the kernel is too large");
        if (more[i] > 0 && (!shape_.transposed || more[i] >= std::max(stride[i], dilation[i])))
            r.fail("output_padding must be smaller than stride or dilation, and is for transposed convolutions");
        if (i < 3 - static_cast<size_t>(spatial_) &&
            (shape_.kernel[i] != 1 || stride[i] != 1 || padding[i] != 0 || dilation[i] != 1 || more[i] != 0))
            r.fail("an axis that is not there has a kernel, a stride, a padding or a dilation");
    }
    if (shape_.phases() > std::max(kFreePhases, shape_.kernel[0] * shape_.kernel[1] * shape_.kernel[2]))
        r.fail("the stride is too large for the kernel");
}

ConvGeometry::Fit ConvGeometry::fit(Planner& p, Tensor& x) const {
    if (x.rank() != spatial_ + 2 || x.size(1) != shape_.in_channels)
        throw PlanError("an input of shape " + text_of(x.sizes) + " must have " + std::to_string(spatial_ + 2) +
                        " axes and " + std::to_string(shape_.in_channels) + " channels");
    Fit fit;
    fit.images = x.size(0);
    for (int64_t i = 0; i < spatial_; ++i) fit.in[static_cast<size_t>(3 - spatial_ + i)] = x.size(2 + i);
    for (const int64_t n : fit.in)
        if (n < 1) throw PlanError("an input of shape " + text_of(x.sizes) + " is empty");
    Size3 out{};
    try {
        out = shape_.output_size(fit.in);
    } catch (const std::invalid_argument& error) {
        throw PlanError(error.what());
    }
    fit.sizes = {x.size(0), shape_.out_channels};
    fit.sizes.insert(fit.sizes.end(), out.end() - spatial_, out.end());
    fit.channels_first = x.is_contiguous() && !lies_channels_inside(x);
    if (!fit.channels_first) x = p.channels_inside(x);
    fit.scratch = shape_.scratch_bytes(fit.images, fit.in);
    const Size3& places = shape_.transposed ? fit.in : out;
    fit.macs = static_cast<double>(fit.images) * static_cast<double>(shape_.out_channels) *
               static_cast<double>(shape_.in_channels / shape_.groups);
    for (size_t i = 0; i < 3; ++i) fit.macs *= static_cast<double>(places[i]) * static_cast<double>(shape_.kernel[i]);
    return fit;
}

}  // namespace zeropoint
