// Copies of a tensor with some elements written anew, or added to, at places that indices name.
#include "engine/step_table.h"

#include "engine/steps/indices.h"

#include <algorithm>
#include <array>

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

// y = x, but y[i][index[i][j][k]][k] = values[i][j][k] along an axis, one after the other. Inputs: x, int64 indices
// nowhere larger than x but along the axis, values at least as large as the indices.
class Scatter : public Step {
public:
    explicit Scatter(StepReader& r) : axis_(r.integer("axis", -8, 7)), writing_(read_writing(r)) {
        r.require_inputs(3);
        r.require_outputs(1);
    }
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
        with_type(x.type, writing_, [&](auto zero) {
            using T = decltype(zero);
            p.emit({y.place, index.place, values.place}, [=, sizes = index.sizes, strides = y.strides,
                                                          length = x.sizes[axis], n = index.count(),
                                                          writing = writing_](void* const* at) {
                T* to = static_cast<T*>(at[0]);
                const int64_t* indices = static_cast<const int64_t*>(at[1]);
                const T* from = static_cast<const T*>(at[2]);
                for (int64_t i = 0; i < n; ++i) {
                    int64_t rest = i, place = 0;
                    for (size_t d = sizes.size(); d-- > 0; rest /= sizes[d])
                        place += strides[d] *
                                 (d == axis ? checked_index("scatter", indices[i], length, false) : rest % sizes[d]);
                    to[place] = combined(writing, to[place], from[i]);
                }
            });
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
        places.push_back(p.scratch(wanted * bytes_of(ElementType::s64)));
        places.push_back(values.place);
        places.push_back(y.place);
        with_type(x.type, writing_, [&](auto zero) {
            using T = decltype(zero);
            p.emit(places, [=, writing = writing_](void* const* at) {
                // All indices are looked at before anything is written: a state is not left half changed.
                int64_t* found = static_cast<int64_t*>(at[count]);
                for (int64_t i = 0; i < wanted; ++i) {
                    found[i] = 0;
                    for (size_t d = 0; d < count; ++d)
                        found[i] = found[i] * lengths[d] +
                                   checked_index("index_put", static_cast<const int64_t*>(at[d])[i], lengths[d], true);
                }
                const T* from = static_cast<const T*>(at[count + 1]);
                T* const to = static_cast<T*>(at[count + 2]);
                for (int64_t o = 0; o < outer; ++o)
                    for (int64_t i = 0; i < wanted; ++i, from += run) {
                        T* row = to + (o * inside + found[i]) * run;
                        for (int64_t k = 0; k < run; ++k) row[k] = combined(writing, row[k], from[k]);
                    }
            });
        });
    }

private:
    Writing writing_;
    size_t axis_;
};

// y = x, but every `step`-th index from begin to end along an axis is one of the values, which broadcast. Negative
// bounds count from the end.
class SliceScatter : public Step {
public:
    explicit SliceScatter(StepReader& r)
        : axis_(r.integer("axis", -8, 7)),
          step_(r.integer("step", 1, kMostElements)),
          begin_(r.size("begin")),
          end_(r.size("end")) {
        r.require_inputs(2);
        r.require_outputs(1);
    }
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
        p.copy(values, part);
    }

private:
    int64_t axis_, step_;
    Integer begin_, end_;
};

}  // namespace

void add_writing_steps(StepTable& table) {
    table.add<Scatter>("scatter");
    table.add<IndexPut>("index_put");
    table.add<SliceScatter>("slice_scatter");
}

}  // namespace zeropoint
