// Steps that choose elements of any type by indices, in their order, or from the other side of an edge.
#include "engine/step_table.h"

#include "cpu/machine.h"
#include "cpu/threads.h"
#include "engine/steps/indices.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace zeropoint {
namespace {

constexpr int64_t kIndices = worth_elements(8);  // worth a thread

// y[i][j][k] = x[i][index[i][j][k]][k] along an axis, of as many axes as there are. Inputs: x, int64 indices, nowhere
// larger than x but along the axis.
class Gather : public StepOf<2, 1> {
public:
    explicit Gather(StepReader& r) : StepOf(r), axis_(r.integer("axis", -8, 7)) {}
    void plan(Planner& p) const override {
        const Tensor& x = p.input(0);
        const Tensor index = p.contiguous(p.typed_input(1, ElementType::s64));
        const size_t axis = static_cast<size_t>(wrapped_axis(axis_, x.rank()));
        bool fits = index.rank() == x.rank();
        for (size_t i = 0; fits && i < x.sizes.size(); ++i) fits = i == axis || index.sizes[i] <= x.sizes[i];
        if (!fits) throw PlanError("indices of " + text_of(index.sizes) + " do not fit " + text_of(x.sizes));
        const Tensor y = p.make(x.type, index.sizes);
        p.give(0, y);
        if (y.count() == 0) return;
        const int64_t element = bytes_of(x.type);
        p.emit({x.place, index.place, y.place},
               [=, sizes = index.sizes, strides = x.strides, length = x.sizes[axis], n = y.count()](void* const* at) {
                   const uint8_t* from = static_cast<const uint8_t*>(at[0]);
                   const int64_t* indices = static_cast<const int64_t*>(at[1]);
                   uint8_t* to = static_cast<uint8_t*>(at[2]);
                   for (int64_t i = 0; i < n; ++i) {
                       int64_t rest = i, place = 0;
                       for (size_t d = sizes.size(); d-- > 0; rest /= sizes[d])
                           place += strides[d] *
                                    (d == axis ? checked_index("gather", indices[i], length, false) : rest % sizes[d]);
                       std::memcpy(to + i * element, from + place * element, static_cast<size_t>(element));
                   }
               });
    }

private:
    int64_t axis_;
};

// y[..., i, ...] = x[..., a[i], b[i], ...]: neighbouring axes from `axis` on, one for each of the int64 indices, which
// broadcast. Negative ones count from the end. Inputs: x, indices.
class Index : public Step {
public:
    explicit Index(StepReader& r) : axis_(r.integer("axis", 0, 7)) {
        r.require_inputs(2, 1 + kMostAxes);
        r.require_outputs(1);
    }
    void plan(Planner& p) const override {
        const Tensor x = p.contiguous(p.input(0));
        const size_t count = p.inputs() - 1, first = static_cast<size_t>(axis_);
        if (first + count > x.sizes.size()) throw PlanError("there are more indices than axes");
        Sizes shape;
        for (size_t i = 0; i < count; ++i) shape = broadcast(shape, p.typed_input(1 + i, ElementType::s64).sizes);
        std::vector<Place> places{x.place};
        for (size_t i = 0; i < count; ++i) {
            Tensor index = p.typed_input(1 + i, ElementType::s64);
            index.strides = expanded_strides(index, shape);
            index.sizes = shape;
            places.push_back(p.contiguous(index).place);
        }
        Sizes sizes(x.sizes.begin(), x.sizes.begin() + axis_);
        sizes.insert(sizes.end(), shape.begin(), shape.end());
        sizes.insert(sizes.end(), x.sizes.begin() + axis_ + static_cast<int64_t>(count), x.sizes.end());
        const Tensor y = p.make(x.type, sizes);
        p.give(0, y);
        if (y.count() == 0) return;
        const Sizes lengths(x.sizes.begin() + axis_, x.sizes.begin() + axis_ + static_cast<int64_t>(count));
        const int64_t outer = count_of({x.sizes.begin(), x.sizes.begin() + axis_}), wanted = count_of(shape);
        const int64_t all = count_of(lengths);
        const int64_t bytes =
            count_of({x.sizes.begin() + axis_ + static_cast<int64_t>(count), x.sizes.end()}) * bytes_of(x.type);
        places.push_back(y.place);
        p.emit(std::move(places), [=](void* const* at) {
            const uint8_t* from = static_cast<const uint8_t*>(at[0]);
            uint8_t* to = static_cast<uint8_t*>(at[1 + count]);
            for (int64_t i = 0; i < wanted; ++i) {
                int64_t place = 0;
                for (size_t d = 0; d < count; ++d)
                    place = place * lengths[d] +
                            checked_index("index", static_cast<const int64_t*>(at[1 + d])[i], lengths[d], true);
                for (int64_t o = 0; o < outer; ++o)
                    std::memcpy(to + (o * wanted + i) * bytes, from + (o * all + place) * bytes,
                                static_cast<size_t>(bytes));
            }
        });
    }

private:
    int64_t axis_;
};

// Values along an axis in their order, NaN above all, equal ones as they were; and where they were (int64).
class Sort : public StepOf<1, 2> {
public:
    explicit Sort(StepReader& r) : StepOf(r), axis_(r.integer("axis", -8, 7)), descending_(r.flag("descending")) {}
    void plan(Planner& p) const override {
        Tensor x = p.input(0);
        const size_t rank = x.sizes.size(), axis = rank == 0 ? 0 : static_cast<size_t>(wrapped_axis(axis_, x.rank()));
        // The axis is the last one while they are sorted.
        const auto turned = [&](Tensor t, bool back) {
            if (rank > 0)
                for (Sizes* part : {&t.sizes, &t.strides})
                    back ? std::rotate(part->begin() + static_cast<int64_t>(axis), part->end() - 1, part->end())
                         : std::rotate(part->begin() + static_cast<int64_t>(axis),
                                       part->begin() + static_cast<int64_t>(axis) + 1, part->end());
            return t;
        };
        x = p.contiguous(turned(x, false));
        const Tensor y = p.make(x.type, x.sizes), where = p.make(ElementType::s64, x.sizes);
        p.give(0, turned(y, true));
        p.give(1, turned(where, true));
        if (x.count() == 0) return;
        const int64_t length = rank == 0 ? 1 : x.sizes.back();
        switch (x.type) {
            case ElementType::u8:
            case ElementType::boolean: return emit<uint8_t>(p, x, y, where, length);
            case ElementType::s8: return emit<int8_t>(p, x, y, where, length);
            case ElementType::s32: return emit<int32_t>(p, x, y, where, length);
            case ElementType::s64: return emit<int64_t>(p, x, y, where, length);
            case ElementType::f32: return emit<float>(p, x, y, where, length);
            default: throw PlanError(std::string("there is no order of ") + name_of(x.type));
        }
    }

private:
    template <class T>
    void emit(Planner& p, const Tensor& x, const Tensor& y, const Tensor& where, int64_t length) const {
        const bool descending = descending_;
        p.emit({x.place, y.place, where.place}, [=, rows = x.count() / length](void* const* at) {
            parallel_for(rows, std::max<int64_t>(1, kIndices / length), [&](int64_t begin, int64_t end) {
                for (int64_t row = begin; row < end; ++row) {
                    const T* values = static_cast<const T*>(at[0]) + row * length;
                    int64_t* places = static_cast<int64_t*>(at[2]) + row * length;
                    std::iota(places, places + length, int64_t{0});
                    std::sort(places, places + length, [&](int64_t i, int64_t j) {
                        const T a = descending ? values[j] : values[i], b = descending ? values[i] : values[j];
                        const bool less = a < b || (b != b && a == a), more = b < a || (a != a && b == b);
                        return less || (!more && i < j);
                    });
                    T* to = static_cast<T*>(at[1]) + row * length;
                    for (int64_t i = 0; i < length; ++i) to[i] = values[places[i]];
                }
            });
        });
    }

    int64_t axis_;
    bool descending_;
};

// What lies around a tensor is taken from it: the values behind its edge in a mirror ("reflect"), those of the edge
// ("replicate"), or those of the other side ("circular"). Pairs of counts, those of the last axis first; negative ones
// cut off.
class PadFrom : public OneInput {
public:
    explicit PadFrom(StepReader& r) : OneInput(r), pads_(r.sizes("pads")) {
        if (pads_.size() % 2 != 0) r.fail("attribute 'pads' must have pairs");
        const std::string mode = r.text("mode");
        if (mode != "reflect" && mode != "replicate" && mode != "circular")
            r.fail("attribute 'mode' must be reflect, replicate or circular");
        mode_ = mode == "reflect" ? Mode::reflect : mode == "circular" ? Mode::circular : Mode::replicate;
    }
    void plan(Planner& p) const override {
        const Tensor& x = p.input(0);
        const std::vector<int64_t> pads = p.integers(pads_);
        if (pads.size() > 2 * x.sizes.size()) throw PlanError("there are more pads than axes");
        Sizes sizes = x.sizes;
        for (size_t i = 0; i < pads.size(); ++i) {
            const int64_t size = x.sizes[x.sizes.size() - 1 - i / 2];
            // The largest pad that can be taken from the axis; a replicated edge goes on for ever.
            const int64_t most = mode_ == Mode::reflect    ? size - 1
                                 : mode_ == Mode::circular ? size
                                 : size > 0                ? kMostPad
                                                           : 0;
            int64_t& padded = sizes[sizes.size() - 1 - i / 2];
            padded += std::clamp(pads[i], -kMostPad, kMostPad);
            if ((pads[i] > 0 && pads[i] > most) || pads[i] < -size || padded < 0)
                throw PlanError("a pad of " + std::to_string(pads[i]) + " cannot be taken from an axis of " +
                                std::to_string(size));
        }
        const bool inside = mode_ != Mode::circular && !x.is_contiguous() && x.is_channels_last();
        const Tensor y = p.make(x.type, sizes, inside ? channels_inside_strides(sizes) : contiguous_strides(sizes));
        p.give(0, y);
        if (y.count() == 0) return;
        std::vector<Axis> axes;
        for (const int64_t d : y.memory_order()) {
            const size_t axis = static_cast<size_t>(d), pair = 2 * (sizes.size() - 1 - axis);
            axes.push_back({x.sizes[axis], y.sizes[axis], pair < pads.size() ? pads[pair] : 0,
                            x.strides[axis] * bytes_of(x.type)});
        }
        if (axes.empty()) axes.push_back({1, 1, 0, 0});
        const Axis inner = axes.back();
        axes.pop_back();
        const int64_t rows = y.count() / inner.size;
        p.emit({x.place, y.place}, [this, axes, inner, rows, element = bytes_of(x.type)](void* const* at) {
            const uint8_t* values = static_cast<const uint8_t*>(at[0]);
            uint8_t* to = static_cast<uint8_t*>(at[1]);
            parallel_for(rows, std::max<int64_t>(1, kIndices / inner.size), [&](int64_t begin, int64_t end) {
                for (int64_t row = begin; row < end; ++row) {
                    int64_t rest = row, place = 0;
                    for (size_t d = axes.size(); d-- > 0; rest /= axes[d].size)
                        place += source(axes[d], rest % axes[d].size);
                    for (int64_t i = 0; i < inner.size; ++i)
                        std::memcpy(to + (row * inner.size + i) * element, values + place + source(inner, i),
                                    static_cast<size_t>(element));
                }
            });
        });
    }

private:
    enum class Mode { reflect, replicate, circular };
    static constexpr int64_t kMostPad = int64_t{1} << 40;

    struct Axis {
        int64_t given, size, low, step;  // step: in bytes
    };

    // Where an element is taken from, in bytes.
    int64_t source(const Axis& axis, int64_t i) const {
        i -= axis.low;
        if (i < 0 || i >= axis.given) {
            if (mode_ == Mode::circular)
                i += i < 0 ? axis.given : -axis.given;
            else if (mode_ == Mode::reflect)
                i = i < 0 ? -i : 2 * (axis.given - 1) - i;
            else
                i = i < 0 ? 0 : axis.given - 1;
        }
        return i * axis.step;
    }

    std::vector<Integer> pads_;
    Mode mode_ = Mode::reflect;
};

}  // namespace

void add_selection_steps(StepTable& table) {
    table.add({{"gather", made<Gather>}, {"index", made<Index>}, {"sort", made<Sort>}, {"pad_from", made<PadFrom>}});
}

}  // namespace zeropoint
