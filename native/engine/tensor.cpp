#include "engine/tensor.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace zeropoint {
namespace {

struct TypeRow {
    ElementType type;
    const char* name;
    int64_t bytes;
};
constexpr std::array<TypeRow, 8> kTypes{{{ElementType::u8, "uint8", 1},
                                         {ElementType::s8, "int8", 1},
                                         {ElementType::s16, "int16", 2},
                                         {ElementType::s32, "int32", 4},
                                         {ElementType::s64, "int64", 8},
                                         {ElementType::f32, "float32", 4},
                                         {ElementType::f16, "float16", 2},
                                         {ElementType::boolean, "bool", 1}}};

bool lie_in_order(const Tensor& x, const std::vector<int64_t>& order) {
    int64_t expected = 1;
    for (size_t i = order.size(); i-- > 0;) {
        const size_t axis = static_cast<size_t>(order[i]);
        if (x.sizes[axis] == 1) continue;
        if (x.strides[axis] != expected) return false;
        expected *= x.sizes[axis];
    }
    return true;
}

}  // namespace

std::string shortened(const std::string& text) {
    constexpr size_t kMost = 1000, kEnd = 200;
    if (text.size() <= kMost) return text;
    const auto character = [&](size_t at) {  // the place where the character at this byte begins
        while (at > 0 && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
        return at;
    };
    return text.substr(0, character(kMost - kEnd)) + " ... " + text.substr(character(text.size() - kEnd));
}

int64_t bytes_of(ElementType type) { return kTypes[static_cast<size_t>(type)].bytes; }
const char* name_of(ElementType type) { return kTypes[static_cast<size_t>(type)].name; }

ElementType type_from_name(const std::string& name) {
    for (const TypeRow& row : kTypes)
        if (name == row.name) return row.type;
    throw FormatError("there is no dtype '" + name + "'");
}

int64_t count_of(const Sizes& sizes) {
    if (sizes.size() > kMostAxes)
        throw PlanError("a tensor has " + std::to_string(sizes.size()) + " axes, more than " +
                        std::to_string(kMostAxes));
    int64_t count = 1;
    bool empty = false;
    for (const int64_t n : sizes) {
        if (n < 0 || n > kMostElements) throw PlanError("a size of " + std::to_string(n) + " is out of range");
        empty = empty || n == 0;
        if (n > 0 && count > kMostElements / n) throw PlanError(text_of(sizes) + " has too many elements");
        if (n > 0) count *= n;
    }
    return empty ? 0 : count;
}

Sizes contiguous_strides(const Sizes& sizes) {
    (void)count_of(sizes);  // so that products of sizes fit
    Sizes strides(sizes.size());
    int64_t step = 1;
    for (size_t axis = sizes.size(); axis-- > 0;) {
        strides[axis] = step;
        step *= std::max<int64_t>(sizes[axis], 1);
    }
    return strides;
}

Sizes channels_inside_strides(const Sizes& sizes) {
    (void)count_of(sizes);
    Sizes strides(sizes.size(), 1);
    int64_t step = std::max<int64_t>(sizes[1], 1);
    for (size_t axis = sizes.size(); axis-- > 2;) {
        strides[axis] = step;
        step *= std::max<int64_t>(sizes[axis], 1);
    }
    strides[0] = step;
    return strides;
}

std::string text_of(const Sizes& sizes) {
    std::string text = "(";
    for (size_t i = 0; i < sizes.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(sizes[i]);
    return text + (sizes.size() == 1 ? ",)" : ")");
}

bool Tensor::is_contiguous() const {
    std::vector<int64_t> order(sizes.size());
    std::iota(order.begin(), order.end(), 0);
    return count() == 0 || lie_in_order(*this, order);
}

bool Tensor::is_channels_last() const {
    if (rank() == 4) return lie_in_order(*this, {0, 2, 3, 1});
    return rank() == 5 && lie_in_order(*this, {0, 2, 3, 4, 1});
}

int64_t Tensor::batch() const { return rank() > 0 && memory_order()[0] == 0 && sizes[0] > 0 ? sizes[0] : 1; }

std::vector<int64_t> Tensor::memory_order() const {
    std::vector<int64_t> order(sizes.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
        return strides[static_cast<size_t>(a)] > strides[static_cast<size_t>(b)];
    });
    return order;
}

bool Tensor::is_dense() const { return count() == 0 || is_contiguous() || lie_in_order(*this, memory_order()); }

bool reshaped_strides(const Tensor& x, const Sizes& sizes, Sizes& strides) {
    strides = contiguous_strides(sizes);
    if (x.count() == 0 || x.is_contiguous()) return true;
    // Runs of old axes that lie one behind the other in memory, from the last one on, and the new axes that share them.
    strides.assign(sizes.size(), 1);
    size_t view = sizes.size();
    int64_t step = x.strides.empty() ? 1 : x.strides.back(), run = 1, shared = 1;
    for (size_t axis = x.sizes.size(); axis-- > 0;) {
        run *= x.sizes[axis];
        const bool ends = axis == 0 || (x.sizes[axis - 1] != 1 && x.strides[axis - 1] != run * step);
        if (!ends) continue;
        while (view > 0 && (shared < run || sizes[view - 1] == 1)) {
            --view;
            strides[view] = shared * step;
            shared *= sizes[view];
        }
        if (shared != run) return false;
        if (axis > 0) {
            step = x.strides[axis - 1];
            run = shared = 1;
        }
    }
    return view == 0;
}

int64_t wrapped_axis(int64_t axis, int64_t rank) {
    if (axis < -rank || axis >= rank)
        throw PlanError("there is no axis " + std::to_string(axis) + " in a tensor of " + std::to_string(rank));
    return axis < 0 ? axis + rank : axis;
}

Sizes broadcast(const Sizes& a, const Sizes& b) {
    Sizes out(std::max(a.size(), b.size()), 1);
    for (size_t i = 0; i < out.size(); ++i) {
        const int64_t m = i < a.size() ? a[a.size() - 1 - i] : 1, n = i < b.size() ? b[b.size() - 1 - i] : 1;
        if (m != n && m != 1 && n != 1) throw PlanError("sizes " + text_of(a) + " and " + text_of(b) + " do not fit");
        out[out.size() - 1 - i] = m == 1 ? n : m;
    }
    count_of(out);
    return out;
}

Sizes expanded_strides(const Tensor& x, const Sizes& sizes) {
    if (broadcast(x.sizes, sizes) != sizes)
        throw PlanError("sizes " + text_of(x.sizes) + " cannot become " + text_of(sizes));
    Sizes strides(sizes.size(), 0);
    const size_t missing = sizes.size() - x.sizes.size();
    for (size_t i = missing; i < sizes.size(); ++i)
        strides[i] = x.sizes[i - missing] == 1 && sizes[i] != 1 ? 0 : x.strides[i - missing];
    return strides;
}

}  // namespace zeropoint
