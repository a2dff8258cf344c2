// Rows of embedding tables. See operators/embedding.h. An index without a row is an error of the call that has it.
#include "operators/embedding.h"

#include "engine/step_table.h"

#include <algorithm>

namespace zeropoint {
namespace {

// Programs refuse wrong inputs with std::invalid_argument, whatever is wrong.
void look_up(const std::string& op, const EmbeddingTensor& t, const Bags& bags) {
    try {
        embedding_bags(op, t, bags);
    } catch (const std::out_of_range& error) {
        throw std::invalid_argument(error.what());
    }
}

// The table is (rows, bytes of a row): values of `bits` bits, then scale and bias of the row.
class Table : public Step {
protected:
    explicit Table(StepReader& r)
        : table_(r.constant(0, ElementType::u8, 2)),
          bits_(static_cast<int>(r.integer("bits", 2, 8))) {
        r.require_outputs(1);
        if (bits_ != 2 && bits_ != 4 && bits_ != 8) r.fail("attribute 'bits' must be 2, 4 or 8");
        const int64_t parameters = bits_ == 8 ? 8 : 4;
        columns_ = (table_.sizes[1] - parameters) * 8 / bits_;
        if (columns_ < 1) r.fail("rows of " + std::to_string(table_.sizes[1]) + " bytes have no values");
    }

    EmbeddingTensor tensor_at(void* y) const {
        return {table_.data, table_.sizes[0], columns_, bits_, static_cast<float*>(y)};
    }
    static Tensor indices(Planner& p, size_t input) {
        const Tensor& x = p.input(input);
        if (x.type != ElementType::s64 && x.type != ElementType::s32)
            throw PlanError("input " + std::to_string(input) + " must be int64 or int32, it is " + name_of(x.type));
        return p.contiguous(x);
    }
    static IndexArray array_at(const void* data, const Tensor& x) {
        return {data, x.type == ElementType::s64, x.count()};
    }

    const StoredTensor& table_;
    int bits_;
    int64_t columns_ = 0;
};

// y[...] = table[x[...]], any shape of x. Inputs: table, x.
class Embedding : public Table {
public:
    explicit Embedding(StepReader& r) : Table(r) { r.require_inputs(2); }

    void plan(Planner& p) const override {
        p.runs("embedding");
        const Tensor x = indices(p, 1);
        Sizes sizes = x.sizes;
        sizes.push_back(columns_);
        const Tensor y = p.make(ElementType::f32, sizes);
        p.give(0, y);
        if (y.count() == 0) return;
        p.needs_memory(static_cast<double>(x.count()) * sizeof(int64_t));
        p.emit({x.place, y.place}, [this, x](void* const* at) {
            Bags bags;
            bags.indices = array_at(at[0], x);
            look_up("embedding", tensor_at(at[1]), bags);
        });
    }
};

// What the rows of each bag add up to. Inputs: table, indices, offsets or null, weights of the indices or null. With
// offsets, indices have one axis and an offset is where a bag begins; else each row of the indices is a bag.
class EmbeddingBags : public Table {
public:
    explicit EmbeddingBags(StepReader& r)
        : Table(r),
          mode_(mode_of(r, r.text("mode"))),
          last_(r.flag("include_last_offset")) {
        r.require_inputs(4);
        if (r.inputs()[3] >= 0 && mode_ != BagMode::sum) r.fail("only sums can have weights");
    }

    void plan(Planner& p) const override {
        p.runs("embedding");
        const Tensor x = indices(p, 1);
        const bool cut = p.has_input(2);
        if (x.rank() != (cut ? 1 : 2))
            throw PlanError("indices of shape " + text_of(x.sizes) + (cut ? " with" : " without") +
                            " offsets must have " + (cut ? "one axis" : "two axes"));
        Tensor offsets, weights;
        int64_t bags = x.size(0);
        if (cut) {
            offsets = indices(p, 2);
            if (offsets.rank() != 1) throw PlanError("offsets must have one axis, got " + text_of(offsets.sizes));
            bags = offsets.size(0) - (last_ ? 1 : 0);
            if (bags < 0) throw PlanError("with include_last_offset there is at least one offset");
        } else if (last_) {
            throw PlanError("include_last_offset is for offsets, there are none");
        }
        const bool weighted = p.has_input(3);
        if (weighted) {
            weights = p.contiguous(p.typed_input(3, ElementType::f32));
            if (weights.sizes != x.sizes)
                throw PlanError("weights of shape " + text_of(weights.sizes) + " for indices of " + text_of(x.sizes));
        }
        const Tensor y = p.make(ElementType::f32, {bags, columns_});
        p.give(0, y);
        std::vector<Place> places{y.place};
        if (!cut && x.size(1) == 0) {
            if (y.count() == 0) return;
            p.emit(places, [n = y.count()](void* const* at) { std::fill_n(static_cast<float*>(at[0]), n, 0.0f); });
            return;
        }
        p.needs_memory((static_cast<double>(x.count()) + static_cast<double>(bags)) * sizeof(int64_t));
        // Without bags, too, offsets are looked at when the program runs.
        places.push_back(x.place);
        if (cut) places.push_back(offsets.place);
        if (weighted) places.push_back(weights.place);
        p.emit(std::move(places), [this, x, offsets, cut, weighted](void* const* at) {
            Bags b;
            b.indices = array_at(at[1], x);
            b.cut = cut;
            b.last = last_;
            b.mode = mode_;
            if (cut) b.offsets = array_at(at[2], offsets);
            if (!cut) b.length = x.size(1);
            if (weighted) b.weights = static_cast<const float*>(at[cut ? 3 : 2]);
            look_up("embedding_bag", tensor_at(at[0]), b);
        });
    }

private:
    static BagMode mode_of(const StepReader& r, const std::string& name) {
        if (name == "sum") return BagMode::sum;
        if (name == "mean") return BagMode::mean;
        if (name == "max") return BagMode::max;
        r.fail("attribute 'mode' must be sum, mean or max");
    }

    BagMode mode_;
    bool last_;
};

}  // namespace

void add_embedding_steps(StepTable& table) {
    table.add({{"embedding", made<Embedding>}, {"embedding_bags", made<EmbeddingBags>}});
}

}  // namespace zeropoint
