// Linear layers and convolutions with stored weights.
#include "operators/layers.h"

#include "engine/steps/byte_tensors.h"
#include "engine/step_table.h"

#include <algorithm>

namespace zeropoint {
namespace {

constexpr int64_t kMostGeometry = 1 << 15;  // kernel, stride, padding, dilation
constexpr int64_t kFreePhases = 256;        // of a transposed convolution; more only with as many kernel positions

// Inputs: x, weight, its scales and zero points (one, or one for each output channel), bias or null, table or null.
// The weight has its output channels first.
class Layer : public Step {
protected:
    Layer(StepReader& r, int64_t weight_rank)
        : weight_(weight_of(r, weight_rank)),
          scale_(r.constant(2, ElementType::f32, 1)),
          zero_point_(r.constant(3, ElementType::s32, 1)),
          bias_(r.optional_constant(4, ElementType::f32, 1)),
          table_(r.optional_table(5)),
          x_(read_scale(r, "input_")) {
        r.require_inputs(4, 6);
        r.require_outputs(1);
        for (const int64_t n : weight_.sizes)
            if (n < 1) r.fail("a weight of shape " + text_of(weight_.sizes) + " is empty");
        const int64_t n = weight_.sizes[0];
        for (const StoredTensor* t : {&scale_, &zero_point_})
            if (t->count() != 1 && t->count() != n)
                r.fail(std::to_string(t->count()) + " scales or zero points for " + std::to_string(n) +
                       " output channels");
        if (bias_ != nullptr && bias_->count() != n)
            r.fail("a bias of " + std::to_string(bias_->count()) + " for " + std::to_string(n) + " output channels");
        const ElementType type = r.type("dtype");
        if (type == ElementType::f32) {
            y_.type = OutputType::f32;
            if (table_ != nullptr) r.fail("only a result of bytes can have a table");
            if (r.flag("relu")) y_.low = 0;
        } else {
            if (type != ElementType::u8 && type != ElementType::s8)
                r.fail("attribute 'dtype' must be uint8, int8 or float32");
            const auto [low, high] = range_of(type);
            const ByteScale scale = read_scale(r, "");
            y_.type = type == ElementType::u8 ? OutputType::u8 : OutputType::s8;
            y_.scale = scale.scale;
            y_.zero_point = scale.zero_point;
            if (scale.zero_point < low || scale.zero_point > high) r.fail("attribute 'zero_point' is out of range");
            y_.lo = static_cast<int32_t>(r.integer("low", low, high));
            y_.hi = static_cast<int32_t>(r.integer("high", y_.lo, high));
            y_.table = table_;
        }
        type_ = type;
    }

    WeightTensor weight_tensor() const {
        return {weight_.data, int_type(weight_.type), reinterpret_cast<const int32_t*>(zero_point_.data),
                zero_point_.count()};
    }
    const float* scales() const { return reinterpret_cast<const float*>(scale_.data); }
    const float* bias() const { return bias_ == nullptr ? nullptr : reinterpret_cast<const float*>(bias_->data); }
    LayerInput input_at(const void* x, IntType type) const { return {x, type, x_.scale, x_.zero_point}; }
    LayerOutput output_at(void* y) const {
        LayerOutput out = y_;
        out.y = y;
        return out;
    }

    const StoredTensor& weight_;
    const StoredTensor& scale_;
    const StoredTensor& zero_point_;
    const StoredTensor* bias_;
    const uint8_t* table_;
    ByteScale x_;
    LayerOutput y_;
    ElementType type_ = ElementType::u8;

private:
    static const StoredTensor& weight_of(StepReader& r, int64_t rank) {
        return r.constant(1, r.byte_type("weight_dtype"), rank);
    }
};

// y = x w' + bias over the last axis; w is (outputs, inputs).
class Linear : public Layer {
public:
    explicit Linear(StepReader& r) : Layer(r, 2) {}

    void prepare() override {
        layer_ = std::make_unique<LinearLayer>(weight_tensor(), weight_.sizes[0], weight_.sizes[1], scales(),
                                               scale_.count(), bias());
    }

    void plan(Planner& p) const override {
        const Tensor x = p.contiguous(p.byte_input(0));
        require_zero_point(x, x_.zero_point);
        const int64_t inputs = weight_.sizes[1], outputs = weight_.sizes[0];
        if (x.rank() < 1 || x.sizes.back() != inputs)
            throw PlanError("an input of shape " + text_of(x.sizes) + " does not fit a weight of " +
                            text_of(weight_.sizes));
        Sizes sizes = x.sizes;
        sizes.back() = outputs;
        const Tensor y = p.make(type_, sizes);
        p.give(0, y);
        const int64_t rows = y.count() / outputs;
        if (rows == 0) return;
        p.emit(
            {x.place, y.place},
            [this, rows, type = int_type(x.type)](void* const* at) {
                layer_->run(input_at(at[0], type), rows, output_at(at[1]));
            },
            static_cast<double>(rows) * static_cast<double>(weight_.count()));
    }

private:
    std::unique_ptr<LinearLayer> layer_;
};

// Convolutions over 1 to 3 axes, transposed ones too. The weight is (outputs, depth, height, width, inputs / groups).
class Convolution : public Layer {
public:
    explicit Convolution(StepReader& r) : Layer(r, 5), spatial_(r.integer("spatial", 1, 3)) {
        shape_.groups = r.integer("groups", 1, kMostElements);
        shape_.out_channels = weight_.sizes[0];
        shape_.in_channels = weight_.sizes[4] * shape_.groups;
        shape_.transposed = r.flag("transposed");
        if (shape_.out_channels % shape_.groups != 0 || shape_.in_channels > kMostElements)
            r.fail("groups do not divide the channels");
        const auto stride = r.integers("stride", 3, 1, kMostGeometry),
                   padding = r.integers("padding", 3, 0, kMostGeometry),
                   dilation = r.integers("dilation", 3, 1, kMostGeometry),
                   more = r.integers("output_padding", 3, 0, kMostGeometry);
        for (size_t i = 0; i < 3; ++i) {
            shape_.kernel[i] = weight_.sizes[i + 1];
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

    void prepare() override {
        layer_ = std::make_unique<ConvLayer>(weight_tensor(), shape_, scales(), scale_.count(), bias());
    }

    void plan(Planner& p) const override {
        Tensor x = p.byte_input(0);
        require_zero_point(x, x_.zero_point);
        if (x.rank() != spatial_ + 2 || x.size(1) != shape_.in_channels)
            throw PlanError("an input of shape " + text_of(x.sizes) + " must have " + std::to_string(spatial_ + 2) +
                            " axes and " + std::to_string(shape_.in_channels) + " channels");
        Size3 in{1, 1, 1};
        for (int64_t i = 0; i < spatial_; ++i) in[static_cast<size_t>(3 - spatial_ + i)] = x.size(2 + i);
        for (const int64_t n : in)
            if (n < 1) throw PlanError("an input of shape " + text_of(x.sizes) + " is empty");
        Size3 out{};
        try {
            out = shape_.output_size(in);
        } catch (const std::invalid_argument& error) {
            throw PlanError(error.what());
        }
        Sizes sizes{x.size(0), shape_.out_channels};
        sizes.insert(sizes.end(), out.end() - spatial_, out.end());
        const bool channels_first = x.is_contiguous() && !lies_channels_inside(x);
        if (!channels_first) x = p.channels_inside(x);
        const Tensor y = p.make(type_, sizes, channels_inside_strides(sizes));
        p.give(0, y);
        const int64_t images = x.size(0);
        if (images == 0) return;
        p.needs_memory(shape_.scratch_bytes(in));
        const int64_t places = shape_.transposed ? in[0] * in[1] * in[2] : out[0] * out[1] * out[2];
        p.emit(
            {x.place, y.place},
            [this, images, in, channels_first, type = int_type(x.type)](void* const* at) {
                layer_->run(input_at(at[0], type), images, in, channels_first, output_at(at[1]));
            },
            static_cast<double>(images) * static_cast<double>(places) * static_cast<double>(weight_.count()));
    }

private:
    static bool lies_channels_inside(const Tensor& x) {
        const Sizes strides = channels_inside_strides(x.sizes);
        for (size_t axis = 0; axis < x.sizes.size(); ++axis)
            if (x.sizes[axis] != 1 && x.strides[axis] != strides[axis]) return false;
        return true;
    }

    int64_t spatial_;
    ConvShape shape_;
    std::unique_ptr<ConvLayer> layer_;
};

}  // namespace

void add_layer_steps(StepTable& table) {
    table.add<Linear>("linear");
    table.add<Convolution>("conv");
}

}  // namespace zeropoint
