// Copies of a tensor with some elements written anew, or added to, at places that indices name.
#include "engine/step_table.h"

#include "engine/copy.h"
#include "engine/steps/indices.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace zeropoint {
namespace {

enum class Writing { set, add, multiply, maximum, minimum };

Writing read_writing(StepReader& r) {
    constexpr std::array kNames = {"set", "add", "multiply", "maximum", "minimum"};
    const std::string name = r.text("mode");
    for (size_t i = 0; i < kNames.size(); ++i)
        if (name == kNames[i]) return static_cast<Writing>(i);
    r.fail("there is no mode '" + name + "'");
}

template <class T>
T combined(Writing writing, T old, T value) {
    const auto wrapped = [](auto a) {
        if constexpr (std::is_same_v<T, float>)
            return a;
        else
            return static_cast<uint64_t>(a);
    };
    switch (writing) {
        case Writing::set: return value;
        case Writing::add: return static_cast<T>(wrapped(old) + wrapped(value));
        case Writing::multiply: return static_cast<T>(wrapped(old) * wrapped(value));
        case Writing::maximum: return old < value || value != value ? value : old;
        case Writing::minimum: return value < old || value != value ? value : old;
    }
    return value;
}

// Calls body with a value of the C++ type behind an element type. Bools are set only.
template <class Body>
void with_type(ElementType type, Writing writing, const Body& body) {
    switch (type) {
        case ElementType::u8: return body(uint8_t{});
        case ElementType::s8: return body(int8_t{});
        case ElementType::s32: return body(int32_t{});
        case ElementType::s64: return body(int64_t{});
        case ElementType::f32: return body(float{});
        case ElementType::boolean:
            if (writing == Writing::set) return body(uint8_t{});
            [[fallthrough]];
        default: throw PlanError(std::string("values of ") + name_of(type) + " cannot be written so");
    }
}

// Rows of `run` elements: `wanted` of the `inside` that there are, in each of `outer` parts.
struct Rows {
    int64_t outer, wanted, inside, run;

    // Calls body(the first element of a row in the tensor, the first of it in what is written).
    template <class Body>
    void each(const int64_t* found, const Body& body) const {
        for (int64_t o = 0; o < outer; ++o)
            for (int64_t i = 0; i < wanted; ++i) body((o * inside + found[i]) * run, (o * wanted + i) * run);
    }
};

// Writes values to those rows of y whose numbers, checked already, are at `found`, one after the other.
template <class T>
void write_rows(Planner& p, const Tensor& y, Place found, const Tensor& values, Rows rows, Writing writing) {
    const size_t row_bytes = static_cast<size_t>(rows.run) * sizeof(T);
    p.keep_old(
        y, p.scratch(values.bytes()), {found},
        [=](void* const* at) {
            const T* from = static_cast<const T*>(at[0]);
            T* old = static_cast<T*>(at[1]);
            rows.each(static_cast<const int64_t*>(at[2]),
                      [&](int64_t row, int64_t k) { std::memcpy(old + k, from + row, row_bytes); });
        },
        [=](void* const* at) {
            T* to = static_cast<T*>(at[0]);
            const T* old = static_cast<const T*>(at[1]);
            rows.each(static_cast<const int64_t*>(at[2]),
                      [&](int64_t row, int64_t k) { std::memcpy(to + row, old + k, row_bytes); });
        });
    p.emit({y.place, found, values.place}, [=](void* const* at) {
        T* to = static_cast<T*>(at[0]);
        const T* from = static_cast<const T*>(at[2]);
        rows.each(static_cast<const int64_t*>(at[1]), [&](int64_t row, int64_t first) {
            for (int64_t k = 0; k < rows.run; ++k) to[row + k] = combined(writing, to[row + k], from[first + k]);
        });
    });
}

// y = x, but y[i][index[i][j][k]][k] = values[i][j][k] along an axis, one after the other. Inputs: x, int64 indices
// nowhere larger than x but along the axis, values at least as large as the indices.
class Scatter : public StepOf<3, 1> {
public:
    explicit Scatter(StepReader& r) : StepOf(r), axis_(r.integer("axis", -8, 7)), writing_(read_writing(r)) {}
    void plan(Planner& p) const override {
        const Tensor& x = p.input(0);
        const Tensor index = p.contiguous(p.typed_input(1, ElementType::s64));
        Tensor values = p.typed_input(2, x.type);
        const size_t axis = static_cast<size_t>(wrapped_axis(axis_, x.rank()));
        bool fits = index.rank() == x.rank() && values.rank() == x.rank();
        for (size_t i = 0; fits && i < x.sizes.size(); ++i)
            fits = (i == axis || index.sizes[i] <= x.sizes[i]) && index.sizes[i] <= values.sizes[i];
        if (!fits)
            throw PlanError("indices of " + text_of(index.sizes) + " do not fit " + text_of(x.sizes) + " and " +
                            text_of(values.sizes));
        values.sizes = index.sizes;
        values = p.contiguous(values);
        const Tensor y = p.to_be_written(x);
        p.give(0, y);
        if (index.count() == 0) return;
        const int64_t n = index.count();
        const Place found = p.scratch(n * bytes_of(ElementType::s64));
        p.emit({index.place, found},
               [=, sizes = index.sizes, strides = y.strides, length = x.sizes[axis]](void* const* at) {
                   const int64_t* indices = static_cast<const int64_t*>(at[0]);
                   int64_t* places = static_cast<int64_t*>(at[1]);
                   for (int64_t i = 0; i < n; ++i) {
                       int64_t rest = i;
                       places[i] = 0;
                       for (size_t d = sizes.size(); d-- > 0; rest /= sizes[d])
                           places[i] += strides[d] * (d == axis ? checked_index("scatter", indices[i], length, false)
                                                                : rest % sizes[d]);
                   }
               });
        with_type(x.type, writing_, [&](auto zero) {
            using T = decltype(zero);
            write_rows<T>(p, y, found, values, {1, n, 0, 1}, writing_);
        });
    }

private:
    int64_t axis_;
    Writing writing_;
};

// y = x, but y[..., a[i], b[i], ...] = values[..., i, ...]: axes from `axis` on, one for each of the int64 indices,
// which broadcast; the values broadcast to what is written. Negative indices count from the end. Inputs: x, values,
// indices.
class IndexPut : public Step {
public:
    explicit IndexPut(StepReader& r)
        : writing_(read_writing(r)),
          axis_(r.has("axis") ? static_cast<size_t>(r.integer("axis", 0, kMostAxes - 1)) : 0) {
        r.require_inputs(3, 2 + kMostAxes);
        r.require_outputs(1);
    }
    void plan(Planner& p) const override {
        const Tensor& x = p.input(0);
        Tensor values = p.typed_input(1, x.type);
        const size_t count = p.inputs() - 2;
        if (axis_ + count > x.sizes.size()) throw PlanError("there are more indices than axes");
        Sizes shape;
        for (size_t i = 0; i < count; ++i) shape = broadcast(shape, p.typed_input(2 + i, ElementType::s64).sizes);
        std::vector<Place> places;
        for (size_t i = 0; i < count; ++i) {
            Tensor index = p.typed_input(2 + i, ElementType::s64);
            index.strides = expanded_strides(index, shape);
            index.sizes = shape;
            places.push_back(p.contiguous(index).place);
        }
        const auto first = x.sizes.begin() + static_cast<int64_t>(axis_);
        const auto behind = first + static_cast<int64_t>(count);
        Sizes written(x.sizes.begin(), first);
        written.insert(written.end(), shape.begin(), shape.end());
        written.insert(written.end(), behind, x.sizes.end());
        values.strides = expanded_strides(values, written);
        values.sizes = written;
        values = p.contiguous(values);
        const Tensor y = p.to_be_written(x);
        p.give(0, y);
        if (count_of(written) == 0) return;
        const Sizes lengths(first, behind);
        const int64_t outer = count_of({x.sizes.begin(), first}), wanted = count_of(shape), inside = count_of(lengths),
                      run = count_of({behind, x.sizes.end()});
        const Place found = p.scratch(wanted * bytes_of(ElementType::s64));
        places.push_back(found);
        p.emit(places, [=](void* const* at) {
            int64_t* rows = static_cast<int64_t*>(at[count]);
            for (int64_t i = 0; i < wanted; ++i) {
                rows[i] = 0;
                for (size_t d = 0; d < count; ++d)
                    rows[i] = rows[i] * lengths[d] +
                              checked_index("index_put", static_cast<const int64_t*>(at[d])[i], lengths[d], true);
            }
        });
        with_type(x.type, writing_, [&](auto zero) {
            using T = decltype(zero);
            write_rows<T>(p, y, found, values, {outer, wanted, inside, run}, writing_);
        });
    }

private:
    Writing writing_;
    size_t axis_;
};

// y = x, but every `step`-th index from begin to end along an axis is one of the values, which broadcast. Negative
// bounds count from the end.
class SliceScatter : public StepOf<2, 1> {
public:
    explicit SliceScatter(StepReader& r)
        : StepOf(r),
          axis_(r.integer("axis", -8, 7)),
          step_(r.integer("step", 1, kMostElements)),
          begin_(r.size("begin")),
          end_(r.size("end")) {}
    void plan(Planner& p) const override {
        const Tensor& x = p.input(0);
        Tensor values = p.typed_input(1, x.type);
        const size_t axis = static_cast<size_t>(wrapped_axis(axis_, x.rank()));
        const int64_t size = x.sizes[axis], step = std::min(step_, std::max<int64_t>(size, 1));
        const auto inside = [&](int64_t index) {
            return std::clamp<int64_t>(index < 0 && index >= -size ? index + size : index, 0, size);
        };
        const int64_t begin = inside(p.integer(begin_)), end = std::max(begin, inside(p.integer(end_)));
        const Tensor y = p.to_be_written(x);
        p.give(0, y);
        Tensor part = y;
        part.sizes[axis] = (end - begin + step - 1) / step;
        part.strides[axis] *= step;
        values.strides = expanded_strides(values, part.sizes);
        values.sizes = part.sizes;
        if (part.count() == 0) return;
        part.place.offset += begin * y.strides[axis] * bytes_of(y.type);
        Tensor old{y.type, part.sizes, contiguous_strides(part.sizes), p.scratch(part.bytes())};
        p.keep_old(
            part, old.place, {}, [copy = StridedCopy(part, old)](void* const* at) { copy.run(at[0], at[1]); },
            [copy = StridedCopy(old, part)](void* const* at) { copy.run(at[1], at[0]); });
        p.copy(values, part);
    }

private:
    int64_t axis_, step_;
    Integer begin_, end_;
};

}  // namespace

void add_writing_steps(StepTable& table) {
    table.add({{"scatter", made<Scatter>}, {"index_put", made<IndexPut>}, {"slice_scatter", made<SliceScatter>}});
}

}  // namespace zeropoint
