// Functions of one value, sums and products of two, and tensors joined.
#include "engine/step_table.h"

#include "engine/steps/binary.h"
#include "operators/concatenation.h"
#include "operators/lookup.h"

#include <algorithm>

namespace zeropoint {
namespace {

// y = table[x]: any function of 8-bit values.
class Lookup : public StepOf<2, 1> {
public:
    explicit Lookup(StepReader& r) : StepOf(r), table_(r.optional_table(1)), type_(r.type("dtype")) {
        if (table_ == nullptr) r.fail("the table is missing");
        if (bytes_of(type_) != 1) r.fail("attribute 'dtype' must be uint8, int8 or bool");
        if (type_ == ElementType::boolean)
            for (int i = 0; i < 256; ++i)
                if (table_[i] > 1) r.fail("a table of bools has other values than 0 and 1");
    }

    void plan(Planner& p) const override {
        p.runs("lookup");
        const Tensor x = p.dense(p.byte_input(0));
        const Tensor y = p.make_like(x, type_, true);
        p.give(0, y);
        if (x.count() == 0) return;
        const int64_t images = x.batch();
        p.emit_images({x, y}, images, [this, each = x.count() / images](void* const* at, int64_t n) {
            lookup(static_cast<const uint8_t*>(at[0]), table_, static_cast<uint8_t*>(at[1]), n * each);
        });
    }

private:
    const uint8_t* table_;
    ElementType type_;
};

class Binary : public Step {
public:
    Binary(StepReader& r, BinaryOperation operation) : pair_(r, operation, "") {
        r.require_inputs(2);
        r.require_outputs(1);
    }

    void plan(Planner& p) const override {
        p.runs("binary");
        p.give(0, pair_.plan(p, p.byte_input(0), p.byte_input(1)));
    }

private:
    BytePair pair_;
};

class Add : public Binary {
public:
    explicit Add(StepReader& r) : Binary(r, BinaryOperation::add) {}
};

class Multiply : public Binary {
public:
    explicit Multiply(StepReader& r) : Binary(r, BinaryOperation::multiply) {}
};

// Tensors one behind the other along an axis. Inputs: n tensors, then n tables that bytes of each go through (or
// nulls), then n tables for images that are channels last and joined along their channels, which are rounded otherwise.
class Cat : public Step {
public:
    explicit Cat(StepReader& r) : axis_(r.integer("axis", -8, 7)) {
        r.require_outputs(1);
        const size_t inputs = r.inputs().size();
        if (inputs == 0 || inputs % 3 != 0) r.fail("inputs must be tensors, and two tables or nulls for each");
        count_ = inputs / 3;
        for (size_t i = count_; i < inputs; ++i) tables_.push_back(r.optional_table(i));
    }

    void plan(Planner& p) const override {
        p.runs("lookup");
        std::vector<Tensor> pieces;
        std::vector<const uint8_t*> tables, image_tables;
        for (size_t i = 0; i < count_; ++i) {
            const Tensor& piece = p.input(i);
            if (piece.sizes == Sizes{0} && count_ > 1) continue;  // fits everywhere, as in torch.cat
            pieces.push_back(piece);
            tables.push_back(tables_[i]);
            image_tables.push_back(tables_[count_ + i]);
        }
        if (pieces.empty()) throw PlanError("there is nothing to join");
        const Tensor first = pieces[0];
        int64_t axis = wrapped_axis(axis_, first.rank());
        Sizes sizes = first.sizes;
        sizes[static_cast<size_t>(axis)] = 0;
        bool inside = true, contiguous = true;
        for (const Tensor& piece : pieces) {
            if (piece.type != first.type) throw PlanError("all inputs must have one dtype");
            Sizes others = piece.sizes;
            if (piece.rank() == first.rank()) others[static_cast<size_t>(axis)] = first.size(axis);
            if (others != first.sizes)
                throw PlanError("shapes may differ in axis " + std::to_string(axis) + " only, got " +
                                text_of(first.sizes) + " and " + text_of(piece.sizes));
            sizes[static_cast<size_t>(axis)] += piece.size(axis);
            inside = inside && piece.is_channels_last();
            contiguous = contiguous && piece.is_contiguous();
        }
        inside = inside && !contiguous;
        if (inside && axis == 1 && first.rank() == 4) tables = image_tables;
        const int64_t element = bytes_of(first.type);
        for (const uint8_t* table : tables)
            if (table != nullptr && element != 1) throw PlanError("only bytes go through a table");
        const Tensor y = p.make(first.type, sizes, inside ? channels_inside_strides(sizes) : contiguous_strides(sizes));
        p.give(0, y);
        // Rows of all axes before this one in memory.
        std::vector<int64_t> order(first.sizes.size());
        for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
        if (inside) std::rotate(order.begin() + 1, order.begin() + 2, order.end());
        const auto at_axis = std::find(order.begin(), order.end(), axis);
        int64_t rows = 1;
        for (auto d = order.begin(); d != at_axis; ++d) rows *= first.size(*d);
        std::vector<Place> places{y.place};
        std::vector<JoinedPiece> joined;
        for (size_t i = 0; i < pieces.size(); ++i) {
            const Tensor piece = inside ? pieces[i] : p.contiguous(pieces[i]);
            int64_t length = element;
            for (auto d = at_axis; d != order.end(); ++d) length *= piece.size(*d);
            joined.push_back({nullptr, tables[i], length});
            places.push_back(piece.place);
        }
        if (y.count() == 0) return;
        p.emit(std::move(places), [joined, rows](void* const* at) {
            thread_local std::vector<JoinedPiece> now;
            now = joined;
            for (size_t i = 0; i < now.size(); ++i) now[i].x = static_cast<const uint8_t*>(at[i + 1]);
            join(now, rows, static_cast<uint8_t*>(at[0]));
        });
    }

private:
    int64_t axis_;
    size_t count_ = 0;
    std::vector<const uint8_t*> tables_;
};

}  // namespace

void add_elementwise_steps(StepTable& table) {
    table.add({{"lookup", made<Lookup>}, {"add", made<Add>}, {"multiply", made<Multiply>}, {"cat", made<Cat>}});
}

}  // namespace zeropoint
