// Other views of the same memory, and sizes as numbers. A copy is made only where a view cannot be.
#include "engine/step_table.h"

#include <algorithm>

namespace zeropoint {
namespace {

Tensor with_sizes(Planner& p, const Tensor& x, const Sizes& sizes) {
    if (count_of(sizes) != x.count())
        throw PlanError("a tensor of shape " + text_of(x.sizes) + " cannot have shape " + text_of(sizes));
    Tensor y = x;
    if (!reshaped_strides(x, sizes, y.strides)) {
        y = p.contiguous(x);
        y.strides = contiguous_strides(sizes);
    }
    y.sizes = sizes;
    return y;
}

// One -1 among the sizes stands for what is left of `count`.
Sizes completed(Sizes sizes, int64_t count) {
    const auto open = std::find(sizes.begin(), sizes.end(), -1);
    if (open == sizes.end()) return sizes;
    *open = 1;
    const int64_t others = count_of(sizes);
    if (others == 0 || count % others != 0)
        throw PlanError(std::to_string(count) + " elements cannot be shared by " + text_of(sizes));
    *open = count / others;
    return sizes;
}

class Reshape : public OneInput {
public:
    explicit Reshape(StepReader& r) : OneInput(r), shape_(r.sizes("shape")) {}
    void plan(Planner& p) const override {
        const Tensor& x = p.input(0);
        p.give(0, with_sizes(p, x, completed(p.integers(shape_), x.count())));
    }

private:
    std::vector<Integer> shape_;
};

// Axes first..last become one.
class Flatten : public OneInput {
public:
    explicit Flatten(StepReader& r) : OneInput(r), first_(r.integer("first", -8, 7)), last_(r.integer("last", -8, 7)) {}
    void plan(Planner& p) const override {
        const Tensor& x = p.input(0);
        if (x.rank() == 0) return p.give(0, with_sizes(p, x, {1}));
        const int64_t first = wrapped_axis(first_, x.rank()), last = wrapped_axis(last_, x.rank());
        if (first > last) throw PlanError("axis " + std::to_string(first) + " comes behind " + std::to_string(last));
        Sizes sizes(x.sizes.begin(), x.sizes.begin() + first);
        sizes.push_back(count_of({x.sizes.begin() + first, x.sizes.begin() + last + 1}));
        sizes.insert(sizes.end(), x.sizes.begin() + last + 1, x.sizes.end());
        p.give(0, with_sizes(p, x, sizes));
    }

private:
    int64_t first_, last_;
};

// One axis becomes several.
class Unflatten : public OneInput {
public:
    explicit Unflatten(StepReader& r) : OneInput(r), axis_(r.integer("axis", -8, 7)), shape_(r.sizes("shape")) {}
    void plan(Planner& p) const override {
        const Tensor& x = p.input(0);
        const int64_t axis = wrapped_axis(axis_, x.rank());
        const Sizes inner = completed(p.integers(shape_), x.size(axis));
        if (count_of(inner) != x.size(axis))
            throw PlanError("an axis of " + std::to_string(x.size(axis)) + " cannot become " + text_of(inner));
        Sizes sizes(x.sizes.begin(), x.sizes.begin() + axis);
        sizes.insert(sizes.end(), inner.begin(), inner.end());
        sizes.insert(sizes.end(), x.sizes.begin() + axis + 1, x.sizes.end());
        p.give(0, with_sizes(p, x, sizes));
    }

private:
    int64_t axis_;
    std::vector<Integer> shape_;
};

class Unsqueeze : public OneInput {
public:
    explicit Unsqueeze(StepReader& r) : OneInput(r), axis_(r.integer("axis", -8, 7)) {}
    void plan(Planner& p) const override {
        Tensor x = p.input(0);
        const int64_t axis = wrapped_axis(axis_, x.rank() + 1);
        const int64_t stride =
            axis < x.rank() ? x.sizes[static_cast<size_t>(axis)] * x.strides[static_cast<size_t>(axis)] : 1;
        x.sizes.insert(x.sizes.begin() + axis, 1);
        x.strides.insert(x.strides.begin() + axis, stride);
        p.give(0, x);
    }

private:
    int64_t axis_;
};

// Axes of one element go; those of more stay. Without axes: all of them.
class Squeeze : public OneInput {
public:
    explicit Squeeze(StepReader& r) : OneInput(r) {
        all_ = !r.has("axes");
        if (!all_) axes_ = r.sizes("axes");
    }
    void plan(Planner& p) const override {
        const Tensor& x = p.input(0);
        std::vector<bool> named(x.sizes.size(), all_);
        for (const Integer& axis : axes_) named[static_cast<size_t>(wrapped_axis(p.integer(axis), x.rank()))] = true;
        Tensor y = x;
        y.sizes.clear();
        y.strides.clear();
        for (size_t axis = 0; axis < x.sizes.size(); ++axis) {
            if (named[axis] && x.sizes[axis] == 1) continue;
            y.sizes.push_back(x.sizes[axis]);
            y.strides.push_back(x.strides[axis]);
        }
        p.give(0, y);
    }

private:
    bool all_ = true;
    std::vector<Integer> axes_;
};

class Permute : public OneInput {
public:
    explicit Permute(StepReader& r) : OneInput(r), order_(r.sizes("order")) {}
    void plan(Planner& p) const override {
        const Tensor& x = p.input(0);
        std::vector<int64_t> order = p.integers(order_);
        if (static_cast<int64_t>(order.size()) != x.rank()) throw PlanError("the order must name every axis");
        std::vector<bool> seen(order.size(), false);
        Tensor y = x;
        for (size_t i = 0; i < order.size(); ++i) {
            const size_t axis = static_cast<size_t>(wrapped_axis(order[i], x.rank()));
            if (seen[axis]) throw PlanError("the order names axis " + std::to_string(axis) + " twice");
            seen[axis] = true;
            y.sizes[i] = x.sizes[axis];
            y.strides[i] = x.strides[axis];
        }
        p.give(0, y);
    }

private:
    std::vector<Integer> order_;
};

// Two axes change places.
class Transpose : public OneInput {
public:
    explicit Transpose(StepReader& r)
        : OneInput(r),
          first_(r.integer("first", -8, 7)),
          second_(r.integer("second", -8, 7)) {}
    void plan(Planner& p) const override {
        Tensor x = p.input(0);
        if (x.rank() == 0) return p.give(0, x);
        const size_t first = static_cast<size_t>(wrapped_axis(first_, x.rank()));
        const size_t second = static_cast<size_t>(wrapped_axis(second_, x.rank()));
        std::swap(x.sizes[first], x.sizes[second]);
        std::swap(x.strides[first], x.strides[second]);
        p.give(0, x);
    }

private:
    int64_t first_, second_;
};

// Every `step`-th index from begin to end along an axis; negative ones count from the end.
class Slice : public OneInput {
public:
    explicit Slice(StepReader& r)
        : OneInput(r),
          axis_(r.integer("axis", -8, 7)),
          step_(r.integer("step", 1, kMostElements)),
          begin_(r.size("begin")),
          end_(r.size("end")) {}
    void plan(Planner& p) const override {
        Tensor x = p.input(0);
        const size_t axis = static_cast<size_t>(wrapped_axis(axis_, x.rank()));
        const int64_t size = x.sizes[axis];
        const auto inside = [&](int64_t index) {
            return std::clamp<int64_t>(index < 0 && index >= -size ? index + size : index, 0, size);
        };
        const int64_t begin = inside(p.integer(begin_)), end = std::max(begin, inside(p.integer(end_)));
        x.place.offset += begin * x.strides[axis] * bytes_of(x.type);
        const int64_t step = std::min(step_, std::max<int64_t>(size, 1));
        x.sizes[axis] = (end - begin + step - 1) / step;
        if (x.sizes[axis] == 0) x.place.offset = 0;
        x.strides[axis] *= step;
        p.give(0, x);
    }

private:
    int64_t axis_, step_;
    Integer begin_, end_;
};

// One index of an axis, which goes.
class Select : public OneInput {
public:
    explicit Select(StepReader& r) : OneInput(r), axis_(r.integer("axis", -8, 7)), index_(r.size("index")) {}
    void plan(Planner& p) const override {
        Tensor x = p.input(0);
        const int64_t axis = wrapped_axis(axis_, x.rank());
        const int64_t size = x.size(axis), given = p.integer(index_), index = given < 0 ? given + size : given;
        if (index < 0 || index >= size)
            throw PlanError("index " + std::to_string(given) + " is outside an axis of " + std::to_string(size));
        x.place.offset += index * x.strides[static_cast<size_t>(axis)] * bytes_of(x.type);
        x.sizes.erase(x.sizes.begin() + axis);
        x.strides.erase(x.strides.begin() + axis);
        p.give(0, x);
    }

private:
    int64_t axis_;
    Integer index_;
};

// Axes of one element repeated; -1 leaves an axis as it is.
class Expand : public OneInput {
public:
    explicit Expand(StepReader& r) : OneInput(r), shape_(r.sizes("shape")) {}
    void plan(Planner& p) const override {
        Tensor x = p.input(0);
        Sizes sizes = p.integers(shape_);
        if (sizes.size() < x.sizes.size()) throw PlanError("the shape has too few axes");
        const size_t missing = sizes.size() - x.sizes.size();
        for (size_t i = missing; i < sizes.size(); ++i)
            if (sizes[i] == -1) sizes[i] = x.sizes[i - missing];
        count_of(sizes);
        x.strides = expanded_strides(x, sizes);
        x.sizes = sizes;
        p.give(0, x);
    }

private:
    std::vector<Integer> shape_;
};

// Windows of `length` along an axis, each `step` behind the one before: the axis counts them, a last one is inside.
class Unfold : public OneInput {
public:
    explicit Unfold(StepReader& r)
        : OneInput(r),
          axis_(r.integer("axis", -8, 7)),
          step_(r.integer("step", 1, kMostElements)),
          length_(r.size("length")) {}
    void plan(Planner& p) const override {
        Tensor x = p.input(0);
        const size_t axis = static_cast<size_t>(wrapped_axis(axis_, x.rank()));
        const int64_t length = p.integer(length_), size = x.sizes[axis];
        if (length < 0 || length > size)
            throw PlanError("windows of " + std::to_string(length) + " do not fit an axis of " + std::to_string(size));
        const int64_t step = std::min(step_, std::max<int64_t>(size, 1));
        x.sizes.push_back(length);
        x.strides.push_back(x.strides[axis]);
        x.sizes[axis] = (size - length) / step_ + 1;
        x.strides[axis] *= step;
        p.give(0, x);
    }

private:
    int64_t axis_, step_;
    Integer length_;
};

// The elements of two axes whose indices differ by `offset`, as a last axis.
class Diagonal : public OneInput {
public:
    explicit Diagonal(StepReader& r)
        : OneInput(r),
          offset_(r.integer("offset", -kMostElements, kMostElements)),
          first_(r.integer("first", -8, 7)),
          second_(r.integer("second", -8, 7)) {}
    void plan(Planner& p) const override {
        Tensor x = p.input(0);
        const int64_t rank = x.rank();
        const size_t first = static_cast<size_t>(wrapped_axis(first_, rank)),
                     second = static_cast<size_t>(wrapped_axis(second_, rank));
        if (first == second) throw PlanError("a diagonal is of two axes");
        const int64_t down = std::max<int64_t>(-offset_, 0), along = std::max<int64_t>(offset_, 0);
        const int64_t length = std::max<int64_t>(std::min(x.sizes[first] - down, x.sizes[second] - along), 0);
        if (length > 0) x.place.offset += (down * x.strides[first] + along * x.strides[second]) * bytes_of(x.type);
        const int64_t stride = x.strides[first] + x.strides[second];
        for (const size_t axis : {std::max(first, second), std::min(first, second)}) {
            x.sizes.erase(x.sizes.begin() + static_cast<int64_t>(axis));
            x.strides.erase(x.strides.begin() + static_cast<int64_t>(axis));
        }
        x.sizes.push_back(length);
        x.strides.push_back(stride);
        p.give(0, x);
    }

private:
    int64_t offset_, first_, second_;
};

// The same values, contiguous in memory.
class Contiguous : public OneInput {
public:
    explicit Contiguous(StepReader& r) : OneInput(r) {}
    void plan(Planner& p) const override { p.give(0, p.contiguous(p.input(0))); }
};

// The size of an axis, as a number.
class SizeOf : public OneInput {
public:
    explicit SizeOf(StepReader& r) : OneInput(r), axis_(r.integer("axis", -8, 7)) {}
    void plan(Planner& p) const override {
        const Tensor& x = p.input(0);
        p.give(0, x.size(wrapped_axis(axis_, x.rank())));
    }

private:
    int64_t axis_;
};

// A number from two others: "add", "subtract", "multiply", "floor_divide", "modulo" (both round down, as Python does),
// or "scaled", a * b of a real b without its fraction.
class Arithmetic : public StepOf<0, 1> {
public:
    explicit Arithmetic(StepReader& r) : StepOf(r), operation_(r.text("operation")), a_(r.size("a")) {
        if (operation_ == "scaled")
            factor_ = r.number("b");
        else
            b_ = r.size("b");
        const auto known = {"add", "subtract", "multiply", "floor_divide", "modulo", "scaled"};
        if (std::find(known.begin(), known.end(), operation_) == known.end())
            r.fail("there is no operation '" + operation_ + "'");
    }
    void plan(Planner& p) const override {
        constexpr int64_t kMost = int64_t{1} << 31;
        const int64_t a = p.integer(a_), b = p.integer(b_);
        if (a < -kMost || a > kMost || b < -kMost || b > kMost) throw PlanError("a number is out of range");
        if (operation_ == "add") return p.give(0, a + b);
        if (operation_ == "subtract") return p.give(0, a - b);
        if (operation_ == "multiply") return p.give(0, a * b);
        if (operation_ == "floor_divide" || operation_ == "modulo") {
            if (b == 0) throw PlanError("division by zero");
            const int64_t quotient = a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
            return p.give(0, operation_ == "modulo" ? a - quotient * b : quotient);
        }
        const double scaled = static_cast<double>(a) * factor_;
        if (!(scaled >= -static_cast<double>(kMost) && scaled <= static_cast<double>(kMost)))
            throw PlanError("a number is out of range");
        p.give(0, static_cast<int64_t>(scaled));
    }

private:
    std::string operation_;
    Integer a_, b_;
    double factor_ = 0;
};

// A number that must be `low` at least, or exactly; its output is that number.
class Require : public StepOf<0, 1> {
public:
    explicit Require(StepReader& r)
        : StepOf(r),
          value_(r.size("value")),
          low_(r.integer("low", -kMost, kMost)),
          exact_(r.flag("exact")),
          why_(r.text("why")) {}
    void plan(Planner& p) const override {
        const int64_t value = p.integer(value_);
        if (exact_ ? value != low_ : value < low_) throw PlanError(why_);
        p.give(0, value);
    }

private:
    static constexpr int64_t kMost = int64_t{1} << 31;

    Integer value_;
    int64_t low_;
    bool exact_;
    std::string why_;
};

}  // namespace

void add_view_steps(StepTable& table) {
    table.add({{"reshape", made<Reshape>},
               {"flatten", made<Flatten>},
               {"unflatten", made<Unflatten>},
               {"unsqueeze", made<Unsqueeze>},
               {"squeeze", made<Squeeze>},
               {"permute", made<Permute>},
               {"transpose", made<Transpose>},
               {"slice", made<Slice>},
               {"select", made<Select>},
               {"expand", made<Expand>},
               {"unfold", made<Unfold>},
               {"diagonal", made<Diagonal>},
               {"contiguous", made<Contiguous>},
               {"size", made<SizeOf>},
               {"arithmetic", made<Arithmetic>},
               {"require", made<Require>}});
}

}  // namespace zeropoint
