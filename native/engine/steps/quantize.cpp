// Between floats and integers.
#include "engine/step_table.h"

#include "engine/steps/byte_tensors.h"
#include "operators/affine.h"

#include <cmath>

namespace zeropoint {
namespace {

// How a step rounds: "split", the default, or "fused", as quantized tensors are made. They differ at ties.
RoundingVariant rounding_of(StepReader& r) {
    if (!r.has("rounding")) return RoundingVariant::split;
    const std::string name = r.text("rounding");
    if (name == "split") return RoundingVariant::split;
    if (name == "fused") return RoundingVariant::fused;
    r.fail("rounding '" + name + "'; it must be split or fused");
}

// y = clamp(rne(x * (1 / scale)) + zero_point, low, high), float32 to 8 bits; fused: clamp(rne(fma(x, 1 / scale, zero
// point))).
class Quantize : public OneInput {
public:
    explicit Quantize(StepReader& r)
        : OneInput(r),
          type_(r.byte_type("dtype")),
          scale_(r.scale("scale")),
          zero_point_(r.integer("zero_point", -128, 255)),
          rounding_(rounding_of(r)) {
        const auto [least, most] = range_of(type_);
        low_ = r.integer("low", least, most);
        high_ = r.integer("high", low_, most);
    }

    void plan(Planner& p) const override {
        p.runs("quantize");
        const Tensor x = p.dense(p.typed_input(0, ElementType::f32));
        const Tensor y = p.make_like(x, type_);
        p.give(0, y);
        if (x.count() == 0) return;
        const int64_t images = x.batch();
        p.emit_images({x, y}, images, [this, each = x.count() / images](void* const* at, int64_t n) {
            quantize_tensor(static_cast<const float*>(at[0]), at[1], int_type(type_), n * each, scale_,
                            static_cast<double>(zero_point_), rounding_, static_cast<double>(low_),
                            static_cast<double>(high_));
        });
    }

private:
    ElementType type_;
    double scale_;
    int64_t zero_point_, low_ = 0, high_ = 255;
    RoundingVariant rounding_;
};

// The same with a scale and a zero point for each index of an axis, which are stored.
class QuantizeChannels : public StepOf<3, 1> {
public:
    explicit QuantizeChannels(StepReader& r)
        : StepOf(r),
          type_(r.byte_type("dtype")),
          scale_(r.constant(1, ElementType::f32, 1)),
          zero_point_(r.constant(2, ElementType::s32, 1)),
          axis_(r.integer("axis", 0, 7)) {
        const auto [least, most] = range_of(type_);
        low_ = r.integer("low", least, most);
        high_ = r.integer("high", low_, most);
        if (scale_.count() != zero_point_.count())
            r.fail(std::to_string(scale_.count()) + " scales and " + std::to_string(zero_point_.count()) +
                   " zero points");
        for (int64_t i = 0; i < scale_.count(); ++i) {
            const float scale = reinterpret_cast<const float*>(scale_.data)[i];
            const int32_t zero_point = reinterpret_cast<const int32_t*>(zero_point_.data)[i];
            if (!std::isfinite(scale) || !(scale > 0)) r.fail("a scale of " + std::to_string(scale));
            if (zero_point < least || zero_point > most) r.fail("a zero point of " + std::to_string(zero_point));
        }
    }

    void plan(Planner& p) const override {
        p.runs("quantize");
        const Tensor x = p.contiguous(p.typed_input(0, ElementType::f32));
        if (axis_ >= x.rank() || x.size(axis_) != scale_.count())
            throw PlanError("an input of shape " + text_of(x.sizes) + " does not have " +
                            std::to_string(scale_.count()) + " channels along axis " + std::to_string(axis_));
        const Tensor y = p.make(type_, x.sizes);
        p.give(0, y);
        if (x.count() == 0) return;
        Grid grid{1, scale_.count(), 1, 0, nullptr};
        for (int64_t axis = 0; axis < x.rank(); ++axis)
            if (axis != axis_) (axis < axis_ ? grid.rows : grid.length) *= x.size(axis);
        p.emit({x.place, y.place}, [this, grid](void* const* at) {
            quantize(static_cast<const float*>(at[0]), at[1], int_type(type_), grid,
                     {scale_.data, ScalarType::f32, scale_.count()},
                     {zero_point_.data, ScalarType::s32, zero_point_.count()}, RoundingVariant::split,
                     static_cast<double>(low_), static_cast<double>(high_));
        });
    }

private:
    ElementType type_;
    const StoredTensor &scale_, &zero_point_;
    int64_t axis_, low_ = 0, high_ = 255;
};

// y = (x - zero_point) * scale, 8 bits to float32.
class Dequantize : public OneInput {
public:
    explicit Dequantize(StepReader& r)
        : OneInput(r),
          scale_(r.scale("scale")),
          zero_point_(static_cast<double>(r.integer("zero_point", -128, 255))) {}

    void plan(Planner& p) const override {
        p.runs("dequantize");
        const Tensor x = p.dense(p.byte_input(0));
        const Tensor y = p.make_like(x, ElementType::f32);
        p.give(0, y);
        if (x.count() == 0) return;
        p.emit({x.place, y.place}, [this, n = x.count(), type = int_type(x.type)](void* const* at) {
            dequantize(at[0], type, static_cast<float*>(at[1]), {1, 1, n, 0, nullptr}, {&scale_, ScalarType::f64, 1},
                       {&zero_point_, ScalarType::f64, 1}, false, false);
        });
    }

private:
    double scale_, zero_point_;
};

}  // namespace

void add_border_steps(StepTable& table) {
    table.add({{"quantize", made<Quantize>},
               {"quantize_channels", made<QuantizeChannels>},
               {"dequantize", made<Dequantize>}});
}

}  // namespace zeropoint
