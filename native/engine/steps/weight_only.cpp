// Linear layers of floats whose weights are kept small and unpacked in registers. See operators/weight_only.h.
#include "operators/weight_only.h"

#include "engine/steps/stored_layer.h"

namespace zeropoint {
namespace {

// Inputs: x, weight (outputs, inputs), and its scales, its zero points, what is added to it, and the bias, or null for
// each of those. `storage`: "uint8", "int8", "uint4" (rows of whole bytes, low bits first) or "float16", which has no
// scales. A group of group_size inputs has a scale; the last may be shorter.
class WeightOnlyLinear : public StepOf<6, 1> {
public:
    explicit WeightOnlyLinear(StepReader& r)
        : StepOf(r),
          storage_(storage_of(r, r.text("storage"))),
          weight_(r.constant(1, element_of(storage_), 2)),
          outputs_(weight_.sizes[0]),
          inputs_(r.integer("inputs", 1, kMostElements)),
          group_size_(r.integer("group_size", 1, kMostElements)),
          relu_(r.flag("relu")),
          scale_(r.optional_constant(2, ElementType::f32, 1)),
          zero_point_(r.optional_constant(3, ElementType::f32, 1)),
          shift_(r.optional_constant(4, ElementType::f32, 1)),
          bias_(r.optional_constant(5, ElementType::f32, 1)) {
        r.packs(1);
        const int64_t columns = storage_ == WeightStorage::u4 ? (inputs_ + 1) / 2 : inputs_;
        if (outputs_ < 1 || weight_.sizes[1] != columns)
            r.fail("a weight of shape " + text_of(weight_.sizes) + " is not for " + std::to_string(inputs_) +
                   " inputs");
        const bool is_half = storage_ == WeightStorage::f16;
        if (is_half != (scale_ == nullptr) || is_half != (zero_point_ == nullptr) || (is_half && shift_ != nullptr))
            r.fail("integers need scales and zero points, float16 has neither");
        if (bias_ != nullptr && bias_->count() != outputs_)
            r.fail("a bias of " + std::to_string(bias_->count()) + " for " + std::to_string(outputs_) + " outputs");
    }

    void prepare() override {
        WeightOnlyTensor w;
        w.data = weight_.data;
        w.storage = storage_;
        w.group_size = group_size_;
        w.scale = parameters(scale_);
        w.zero_point = parameters(zero_point_);
        w.shift = parameters(shift_);
        layer_ = std::make_unique<WeightOnlyLayer>(w, outputs_, inputs_, parameters(bias_).data);
    }

    void plan(Planner& p) const override {
        p.runs("weight_only");
        const Tensor x = p.contiguous(p.typed_input(0, ElementType::f32));
        const Tensor y = p.make(ElementType::f32, product_sizes(x, outputs_, inputs_));
        p.give(0, y);
        const int64_t rows = y.count() / outputs_;
        if (rows == 0) return;
        p.needs_memory(static_cast<double>(x.bytes()));
        p.emit(
            {x.place, y.place},
            [this, rows](void* const* at) { layer_->run(at[0], FloatType::f32, rows, at[1], FloatType::f32, relu_); },
            static_cast<double>(rows) * static_cast<double>(outputs_) * static_cast<double>(inputs_));
    }

private:
    static WeightStorage storage_of(const StepReader& r, const std::string& name) {
        if (name == "uint8") return WeightStorage::u8;
        if (name == "int8") return WeightStorage::s8;
        if (name == "uint4") return WeightStorage::u4;
        if (name == "float16") return WeightStorage::f16;
        r.fail("attribute 'storage' must be uint8, int8, uint4 or float16");
    }
    static ElementType element_of(WeightStorage storage) {
        if (storage == WeightStorage::f16) return ElementType::f16;
        return storage == WeightStorage::s8 ? ElementType::s8 : ElementType::u8;
    }
    static WeightParameters parameters(const StoredTensor* t) {
        if (t == nullptr) return {};
        return {reinterpret_cast<const float*>(t->data), t->count()};
    }

    WeightStorage storage_;
    const StoredTensor& weight_;
    int64_t outputs_, inputs_, group_size_;
    bool relu_;
    const StoredTensor *scale_, *zero_point_, *shift_, *bias_;
    std::unique_ptr<WeightOnlyLayer> layer_;
};

}  // namespace

void add_weight_only_steps(StepTable& table) { table.add({{"weight_only_linear", made<WeightOnlyLinear>}}); }

}  // namespace zeropoint
