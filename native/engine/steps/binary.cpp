#include "engine/steps/binary.h"

#include <cmath>

namespace zeropoint {
namespace {

struct ByteAxis {
    int64_t size, a, b;
};

// A difference is a sum with a negative scale.
ByteScale read_operand(StepReader& r, const std::string& prefix) {
    const float scale = static_cast<float>(r.number((prefix + "scale").c_str()));
    if (!std::isfinite(scale)) r.fail("attribute '" + prefix + "scale' must be finite");
    return {scale, static_cast<int32_t>(r.integer((prefix + "zero_point").c_str(), -128, 255))};
}

// How operands that differ in layout are walked; copied to the layout of the result where they cannot be.
void place(Planner& p, Tensor& a, Tensor& b, const Tensor& y, BinaryTensors& t) {
    constexpr int64_t kShort = 64;  // shorter rows cost more to begin than to compute
    const Sizes a_strides = expanded_strides(a, y.sizes), b_strides = expanded_strides(b, y.sizes);
    std::vector<ByteAxis> axes;
    for (const int64_t d : y.memory_order()) {
        const size_t axis = static_cast<size_t>(d);
        const ByteAxis next{y.sizes[axis], a_strides[axis], b_strides[axis]};
        if (next.size == 1) continue;
        if (!axes.empty() && axes.back().a == next.size * next.a && axes.back().b == next.size * next.b)
            axes.back() = {axes.back().size * next.size, next.a, next.b};
        else
            axes.push_back(next);
    }
    const ByteAxis last = axes.empty() ? ByteAxis{1, 1, 1} : axes.back();
    const auto fits = [](int64_t step) { return step == 0 || step == 1; };
    const bool walks = fits(last.a) && fits(last.b) && last.a + last.b > 0;
    if (!walks || (last.size < kShort && axes.size() > 1)) {
        for (Tensor* operand : {&a, &b}) {
            if (operand->sizes == y.sizes && operand->strides == y.strides) continue;
            Tensor wide = *operand;
            wide.strides = expanded_strides(*operand, y.sizes);
            wide.sizes = y.sizes;
            *operand = p.laid_out(wide, y.strides);
        }
        return;
    }
    if (!axes.empty()) axes.pop_back();
    t.length = last.size;
    const bool swapped = last.a == 0;  // both operations are symmetric
    t.b_is_one = swapped || last.b == 0;
    for (const ByteAxis& axis : axes) {
        t.sizes.push_back(axis.size);
        t.a_strides.push_back(swapped ? axis.b : axis.a);
        t.b_strides.push_back(swapped ? axis.a : axis.b);
    }
    if (swapped) {
        std::swap(a, b);
        std::swap(t.a, t.b);
    }
}

}  // namespace

BytePair::BytePair(StepReader& r, BinaryOperation operation, const std::string& prefix)
    : operation_(operation),
      a_(read_operand(r, prefix + "a_")),
      b_(read_operand(r, prefix + "b_")),
      y_(read_scale(r, prefix)),
      relu_(r.flag((prefix + "relu").c_str())) {
    if (!rounds_as_qnnpack(r, prefix + "rounding")) return;
    if (operation != BinaryOperation::add) r.fail("only sums have an attribute '" + prefix + "rounding'");
    if (!fits_fixed_add(a_.scale, b_.scale, y_.scale)) r.fail("the scales of a sum in fixed point are too far apart");
    fixed_ = true;
}

void BytePair::require_fit(const Tensor& a, const Tensor& b) const {
    if (a.type != b.type) throw PlanError("both inputs must have one dtype");
    require_zero_point(a, a_.zero_point);
    require_zero_point(b, b_.zero_point);
    require_zero_point(a, y_.zero_point);
}

BinaryTensors BytePair::tensors(ElementType type, bool one_shape) const {
    BinaryTensors t;
    t.operation = fixed_ && one_shape && type == ElementType::u8 ? BinaryOperation::fixed_add : operation_;
    t.type = int_type(type);
    t.a.scale = a_.scale;
    t.a.zero_point = a_.zero_point;
    t.b.scale = b_.scale;
    t.b.zero_point = b_.zero_point;
    t.scale = y_.scale;
    t.zero_point = y_.zero_point;
    t.relu = relu_;
    return t;
}

BinaryArgs BytePair::args(ElementType type, bool swapped) const {
    BinaryTensors t = tensors(type, true);
    if (swapped) std::swap(t.a, t.b);
    return binary_args(t);
}

Tensor BytePair::plan(Planner& p, Tensor a, Tensor b) const {
    require_fit(a, b);
    BinaryTensors t = tensors(a.type, a.sizes == b.sizes);
    const Sizes sizes = broadcast(a.sizes, b.sizes);
    const bool alike = a.sizes == b.sizes && a.strides == b.strides && a.is_dense();
    // Laid out as the operand that has the shape of the result.
    const Tensor y = a.sizes == sizes   ? p.make_like(a, a.type, alike && a.place.buffer != b.place.buffer)
                     : b.sizes == sizes ? p.make_like(b, a.type)
                                        : p.make(a.type, sizes);
    if (y.count() == 0) return y;
    t.length = y.count();
    if (!alike) place(p, a, b, y, t);
    const auto run = [](BinaryTensors now, void* const* at) {
        now.a.data = at[0];
        now.b.data = at[1];
        now.y = at[2];
        binary(now);
    };
    if (!alike) {
        p.emit({a.place, b.place, y.place}, [t, run](void* const* at) { run(t, at); });
        return y;
    }
    const int64_t images = y.batch();
    p.emit_images({a, b, y}, images, [t, run, each = t.length / images](void* const* at, int64_t n) {
        BinaryTensors some = t;
        some.length = n * each;
        run(some, at);
    });
    return y;
}

}  // namespace zeropoint
