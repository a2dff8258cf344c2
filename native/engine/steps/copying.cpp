// Steps that move, repeat or choose elements of any type.
#include "engine/step_table.h"

#include "cpu/threads.h"
#include "engine/steps/byte_tensors.h"
#include "kernels/registry.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace zeropoint {
namespace {

constexpr int64_t kMostPad = int64_t{1} << 31;

// The other way round along some axes.
class Flip : public OneInput {
public:
    explicit Flip(StepReader& r) : OneInput(r), axes_(r.sizes("axes")) {}
    void plan(Planner& p) const override {
        const Tensor& x = p.input(0);
        const Tensor y = p.make_like(x, x.type);
        Tensor turned = x;
        std::vector<bool> seen(x.sizes.size(), false);
        for (const Integer& given : axes_) {
            const size_t axis = static_cast<size_t>(wrapped_axis(p.integer(given), x.rank()));
            if (seen[axis]) throw PlanError("axis " + std::to_string(axis) + " is named twice");
            seen[axis] = true;
            turned.place.offset += std::max<int64_t>(x.sizes[axis] - 1, 0) * x.strides[axis] * bytes_of(x.type);
            turned.strides[axis] = -x.strides[axis];
        }
        p.give(0, y);
        if (y.count() > 0) p.copy(turned, y);
    }

private:
    std::vector<Integer> axes_;
};

// The whole tensor several times along each axis; axes that are missing come first.
class Repeat : public OneInput {
public:
    explicit Repeat(StepReader& r) : OneInput(r), times_(r.sizes("repeats")) {}
    void plan(Planner& p) const override {
        const Tensor& x = p.input(0);
        const std::vector<int64_t> times = p.integers(times_);
        if (static_cast<int64_t>(times.size()) < x.rank()) throw PlanError("there are too few repeats");
        const size_t missing = times.size() - x.sizes.size();
        Tensor from = x, to;
        Sizes sizes;
        from.sizes.clear();
        from.strides.clear();
        for (size_t i = 0; i < times.size(); ++i) {
            const int64_t n = i < missing ? 1 : x.sizes[i - missing];
            if (times[i] < 0 || times[i] > kMostElements) throw PlanError("a tensor cannot be repeated so often");
            if (n > 0 && times[i] > kMostElements / n) throw PlanError("a tensor cannot be repeated so often");
            sizes.push_back(times[i] * n);
        }
        const Tensor y = p.make(x.type, sizes);
        p.give(0, y);
        if (y.count() == 0) return;
        to = y;
        to.sizes.clear();
        to.strides.clear();
        for (size_t i = 0; i < times.size(); ++i) {
            const int64_t n = i < missing ? 1 : x.sizes[i - missing], step = i < missing ? 0 : x.strides[i - missing];
            const auto add = [&](int64_t size, int64_t x_stride, int64_t y_stride) {
                if (size == 1) return;
                from.sizes.push_back(size);
                from.strides.push_back(x_stride);
                to.sizes.push_back(size);
                to.strides.push_back(y_stride);
            };
            add(times[i], 0, n * y.strides[i]);
            add(n, step, y.strides[i]);
        }
        p.copy(from, to);
    }

private:
    std::vector<Integer> times_;
};

// (..., C r r, H, W) -> (..., C, H r, W r), or back.
class PixelShuffle : public OneInput {
public:
    PixelShuffle(StepReader& r, bool back) : OneInput(r), back_(back), factor_(r.integer("factor", 1, 1 << 15)) {}
    void plan(Planner& p) const override {
        const Tensor& given = p.input(0);
        if (given.rank() < 3)
            throw PlanError("an input of shape " + text_of(given.sizes) + " must have 3 axes or more");
        const bool inside = given.rank() == 4 && !given.is_contiguous() && given.is_channels_last();
        const Tensor x = inside ? given : p.contiguous(given);
        const size_t c = x.sizes.size() - 3;
        const int64_t r = factor_;
        const bool fits = back_ ? x.sizes[c + 1] % r == 0 && x.sizes[c + 2] % r == 0 : x.sizes[c] % (r * r) == 0;
        if (!fits || x.sizes[c] > kMostElements / (r * r))
            throw PlanError("a factor of " + std::to_string(r) + " does not fit " + text_of(x.sizes));
        Sizes sizes = x.sizes;
        sizes[c] = back_ ? x.sizes[c] * r * r : x.sizes[c] / (r * r);
        for (const size_t axis : {c + 1, c + 2}) sizes[axis] = back_ ? x.sizes[axis] / r : x.sizes[axis] * r;
        const Tensor y = p.make(x.type, sizes, inside ? channels_inside_strides(sizes) : contiguous_strides(sizes));
        p.give(0, y);
        if (y.count() == 0) return;
        p.copy(back_ ? tall(x) : deep(x), back_ ? deep(y) : tall(y));
    }

private:
    // Both as (images, C, r, r, H, W).
    Tensor deep(const Tensor& t) const {
        const size_t c = t.sizes.size() - 3;
        const int64_t r = factor_, step = t.strides[c];
        return seen(t, {0, t.sizes[c] / (r * r), r, r, t.sizes[c + 1], t.sizes[c + 2]},
                    {0, step * r * r, step * r, step, t.strides[c + 1], t.strides[c + 2]});
    }
    Tensor tall(const Tensor& t) const {
        const size_t c = t.sizes.size() - 3;
        const int64_t r = factor_, down = t.strides[c + 1], along = t.strides[c + 2];
        return seen(t, {0, t.sizes[c], r, r, t.sizes[c + 1] / r, t.sizes[c + 2] / r},
                    {0, t.strides[c], down, along, down * r, along * r});
    }
    static Tensor seen(const Tensor& t, const Sizes& sizes, const Sizes& strides) {
        const size_t c = t.sizes.size() - 3;
        Tensor made{t.type, sizes, strides, t.place};
        made.sizes[0] = count_of({t.sizes.begin(), t.sizes.end() - 3});
        made.strides[0] = c == 0 ? 0 : t.strides[c - 1];
        return made;
    }

    bool back_;
    int64_t factor_;
};

// What lies around a tensor: pairs of counts, those of the last axis first; negative ones cut off.
class Pad : public OneInput {
public:
    explicit Pad(StepReader& r) : OneInput(r), pads_(r.sizes("pads")), value_(r.number("value")) {
        if (pads_.size() % 2 != 0) r.fail("attribute 'pads' must have pairs");
    }
    void plan(Planner& p) const override {
        Tensor x = p.input(0);
        const std::vector<int64_t> pads = p.integers(pads_);
        if (pads.size() > 2 * x.sizes.size()) throw PlanError("there are more pads than axes");
        const int64_t element = bytes_of(x.type);
        Sizes sizes = x.sizes;
        std::vector<int64_t> before(x.sizes.size(), 0);
        const bool inside = !x.is_contiguous() && x.is_channels_last();
        for (size_t i = 0; i < pads.size() / 2; ++i) {
            const size_t axis = x.sizes.size() - 1 - i;
            const int64_t low = pads[2 * i], high = pads[2 * i + 1];
            if (std::max(low, high) > kMostPad || std::min(low, high) < -kMostPad)
                throw PlanError("a pad is out of range");
            const int64_t cut = std::max<int64_t>(-low, 0) + std::max<int64_t>(-high, 0);
            if (x.sizes[axis] < cut) throw PlanError("an axis of " + std::to_string(x.sizes[axis]) + " cannot be cut");
            sizes[axis] += low + high;
            before[axis] = std::max<int64_t>(low, 0);
            x.place.offset += std::max<int64_t>(-low, 0) * x.strides[axis] * element;
            x.sizes[axis] -= cut;
        }
        const Tensor y = p.make(x.type, sizes, inside ? channels_inside_strides(sizes) : contiguous_strides(sizes));
        p.give(0, y);
        if (y.count() == 0) return;
        p.emit({y.place}, [pattern = pattern_of(x.type), element, n = y.count()](void* const* at) {
            fill(static_cast<uint8_t*>(at[0]), pattern, element, n);
        });
        if (x.count() == 0) return;
        Tensor middle = y;
        middle.sizes = x.sizes;
        for (size_t axis = 0; axis < before.size(); ++axis)
            middle.place.offset += before[axis] * y.strides[axis] * element;
        p.copy(x, middle);
    }

private:
    uint64_t pattern_of(ElementType type) const {
        uint64_t pattern = 0;
        const auto store = [&](auto value) { std::memcpy(&pattern, &value, sizeof value); };
        const auto whole = [&](double low, double high) {
            if (!(value_ >= low && value_ <= high)) throw PlanError("the value does not fit the dtype");
            return static_cast<int64_t>(value_);
        };
        switch (type) {
            case ElementType::f32: store(static_cast<float>(value_)); break;
            case ElementType::u8: store(static_cast<uint8_t>(whole(0, 255))); break;
            case ElementType::s8: store(static_cast<int8_t>(whole(-128, 127))); break;
            case ElementType::s32: store(static_cast<int32_t>(whole(-2147483648.0, 2147483647.0))); break;
            case ElementType::s64: store(whole(-9e15, 9e15)); break;
            default: throw PlanError(std::string("there is no pad of ") + name_of(type));
        }
        return pattern;
    }
    static void fill(uint8_t* y, uint64_t pattern, int64_t element, int64_t n) {
        if (element == 1) {
            std::memset(y, static_cast<int>(pattern & 255), static_cast<size_t>(n));
            return;
        }
        std::memcpy(y, &pattern, static_cast<size_t>(element));
        for (int64_t done = element, all = n * element; done < all; done *= 2)  // twice as much each time
            std::memcpy(y + done, y, static_cast<size_t>(std::min(done, all - done)));
    }

    std::vector<Integer> pads_;
    double value_;
};

// y[..., i, ...] = x[..., index[i], ...] along an axis. Inputs: x, int64 indices.
class IndexSelect : public StepOf<2, 1> {
public:
    explicit IndexSelect(StepReader& r) : StepOf(r), axis_(r.integer("axis", -8, 7)) {}
    void plan(Planner& p) const override {
        const Tensor x = p.contiguous(p.input(0)), index = p.contiguous(p.typed_input(1, ElementType::s64));
        const int64_t axis = wrapped_axis(axis_, x.rank());
        if (index.rank() > 1) throw PlanError("the indices must have one axis");
        Sizes sizes = x.sizes;
        const int64_t length = sizes[static_cast<size_t>(axis)], wanted = index.count();
        sizes[static_cast<size_t>(axis)] = wanted;
        const Tensor y = p.make(x.type, sizes);
        p.give(0, y);
        if (y.count() == 0) return;
        const int64_t outer = count_of({x.sizes.begin(), x.sizes.begin() + axis});
        const int64_t bytes = count_of({x.sizes.begin() + axis + 1, x.sizes.end()}) * bytes_of(x.type);
        p.emit({x.place, index.place, y.place}, [=](void* const* at) {
            const int64_t* indices = static_cast<const int64_t*>(at[1]);
            for (int64_t i = 0; i < wanted; ++i)
                if (indices[i] < 0 || indices[i] >= length)
                    throw std::invalid_argument("index_select: index " + std::to_string(indices[i]) +
                                                " is outside an axis of " + std::to_string(length));
            const uint8_t* from = static_cast<const uint8_t*>(at[0]);
            uint8_t* to = static_cast<uint8_t*>(at[2]);
            for (int64_t o = 0; o < outer; ++o)
                for (int64_t i = 0; i < wanted; ++i)
                    std::memcpy(to + (o * wanted + i) * bytes, from + (o * length + indices[i]) * bytes,
                                static_cast<size_t>(bytes));
        });
    }

private:
    int64_t axis_;
};

// The largest or smallest along an axis, or the first NaN, and where it first is (int64).
class Extreme : public StepOf<1, 2> {
public:
    explicit Extreme(StepReader& r)
        : StepOf(r),
          largest_(r.flag("largest")),
          keep_(r.flag("keepdim")),
          axis_(r.integer("axis", -8, 7)) {}
    void plan(Planner& p) const override {
        const Tensor x = p.contiguous(p.input(0));
        const int64_t axis = wrapped_axis(axis_, x.rank());
        const int64_t length = x.size(axis);
        if (length == 0) throw PlanError("there are no values to choose from");
        Sizes sizes = x.sizes;
        if (keep_)
            sizes[static_cast<size_t>(axis)] = 1;
        else
            sizes.erase(sizes.begin() + axis);
        const Tensor y = p.make(x.type, sizes), place = p.make(ElementType::s64, sizes);
        p.give(0, y);
        p.give(1, place);
        if (y.count() == 0) return;
        const int64_t outer = count_of({x.sizes.begin(), x.sizes.begin() + axis});
        const int64_t inner = count_of({x.sizes.begin() + axis + 1, x.sizes.end()});
        const auto emit = [&](auto zero) {
            using T = decltype(zero);
            p.emit({x.place, y.place, place.place}, [=, largest = largest_](void* const* at) {
                const T* values = static_cast<const T*>(at[0]);
                T* best = static_cast<T*>(at[1]);
                int64_t* where = static_cast<int64_t*>(at[2]);
                for (int64_t o = 0; o < outer; ++o)
                    for (int64_t i = 0; i < inner; ++i) {
                        const T* first = values + o * length * inner + i;
                        int64_t found = 0;
                        for (int64_t k = 1; k < length; ++k) {
                            const T a = first[k * inner], b = first[found * inner];
                            if ((largest ? a > b : a < b) || (a != a && b == b)) found = k;
                        }
                        best[o * inner + i] = first[found * inner];
                        where[o * inner + i] = found;
                    }
            });
        };
        switch (x.type) {
            case ElementType::boolean:
            case ElementType::u8: return emit(uint8_t{});
            case ElementType::s8: return emit(int8_t{});
            case ElementType::s32: return emit(int32_t{});
            case ElementType::s64: return emit(int64_t{});
            case ElementType::f32: return emit(float{});
            default: throw PlanError(std::string("there is no order of ") + name_of(x.type));
        }
    }

private:
    bool largest_, keep_;
    int64_t axis_;
};

// y = tables[channel][x] of (N, C, ...); inputs: x, tables (C, 256).
class ChannelLookup : public StepOf<2, 1> {
public:
    explicit ChannelLookup(StepReader& r) : StepOf(r), tables_(r.constant(1, ElementType::u8, 2)) {
        if (tables_.sizes[1] != 256) r.fail("tables must have 256 bytes each");
    }
    void plan(Planner& p) const override {
        const Tensor& given = p.byte_input(0);
        if (given.rank() < 2 || given.size(1) != tables_.sizes[0])
            throw PlanError("an input of shape " + text_of(given.sizes) + " must have " +
                            std::to_string(tables_.sizes[0]) + " channels");
        const bool inside = given.is_channels_last() && !given.is_contiguous();
        const Tensor x = inside ? given : p.contiguous(given);
        const Tensor y = p.make_like(x, x.type, true);
        p.give(0, y);
        if (y.count() == 0) return;
        const int64_t channels = x.size(1), run = inside ? 1 : count_of({x.sizes.begin() + 2, x.sizes.end()});
        p.emit({x.place, y.place}, [this, channels, run, runs = y.count() / run](void* const* at) {
            const uint8_t* from = static_cast<const uint8_t*>(at[0]);
            uint8_t* to = static_cast<uint8_t*>(at[1]);
            const LookupFn lookup = kernels().lookup;
            parallel_for(runs, std::max<int64_t>(1, 32768 / run), [&](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i) {
                    const uint8_t* table = tables_.data + i % channels * 256;
                    if (run == 1)
                        to[i] = table[from[i]];
                    else
                        lookup({from + i * run, table, to + i * run}, 0, run);
                }
            });
        });
    }

private:
    const StoredTensor& tables_;
};

class Shuffle : public PixelShuffle {
public:
    explicit Shuffle(StepReader& r) : PixelShuffle(r, false) {}
};

class Unshuffle : public PixelShuffle {
public:
    explicit Unshuffle(StepReader& r) : PixelShuffle(r, true) {}
};

}  // namespace

void add_movement_steps(StepTable& table) {
    table.add({{"flip", made<Flip>},
               {"repeat", made<Repeat>},
               {"pixel_shuffle", made<Shuffle>},
               {"pixel_unshuffle", made<Unshuffle>},
               {"pad", made<Pad>},
               {"index_select", made<IndexSelect>},
               {"extreme", made<Extreme>},
               {"channel_lookup", made<ChannelLookup>}});
}

}  // namespace zeropoint
