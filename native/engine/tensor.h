// Tensors while a program is planned: a type, sizes and strides over a place in some buffer. No memory is behind them.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace zeropoint {

// A message without its middle if it is long: names and values of files, which may have any length, are part of it.
std::string shortened(const std::string& text);

// A program, or a file, that is not as it must be.
class FormatError : public std::runtime_error {
public:
    explicit FormatError(const std::string& what) : std::runtime_error(shortened(what)) {}
};

// What a program cannot do with inputs of these sizes.
class PlanError : public std::invalid_argument {
public:
    explicit PlanError(const std::string& what) : std::invalid_argument(shortened(what)) {}
};

enum class ElementType : int { u8 = 0, s8 = 1, s16 = 2, s32 = 3, s64 = 4, f32 = 5, f16 = 6, boolean = 7 };

int64_t bytes_of(ElementType type);
const char* name_of(ElementType type);
// Throws FormatError for a name that is none: "float32", "uint8", ...
ElementType type_from_name(const std::string& name);

using Sizes = std::vector<int64_t>;

// No tensor has more elements, those that views repeat included: products of sizes fit in 64 bits.
constexpr int64_t kMostElements = int64_t{1} << 40;
constexpr size_t kMostAxes = 8;

// The number of elements. Throws PlanError for negative sizes, too many axes or too many elements.
int64_t count_of(const Sizes& sizes);
Sizes contiguous_strides(const Sizes& sizes);
// (N, C, ...) with the channels innermost in memory.
Sizes channels_inside_strides(const Sizes& sizes);
std::string text_of(const Sizes& sizes);

// Where something begins: a buffer of the plan, and bytes from its start.
struct Place {
    int32_t buffer = -1;
    int64_t offset = 0;
};

struct Tensor {
    ElementType type = ElementType::f32;
    Sizes sizes, strides;  // strides in elements
    Place place;

    int64_t rank() const { return static_cast<int64_t>(sizes.size()); }
    int64_t count() const { return count_of(sizes); }
    int64_t bytes() const { return count() * bytes_of(type); }
    int64_t size(int64_t axis) const { return sizes[static_cast<size_t>(axis)]; }

    // As torch has it: axes of one element lie anywhere.
    bool is_contiguous() const;
    // (N, C, H, W) or (N, C, D, H, W) with the channels innermost.
    bool is_channels_last() const;
    // Every element once, without gaps, in any order of the axes.
    bool is_dense() const;
    // Of a dense tensor: the size of the first axis where that is the outermost in memory, else 1.
    int64_t batch() const;
    // The axes, outermost in memory first.
    std::vector<int64_t> memory_order() const;
};

// The strides of the same elements with other sizes, if that needs no copy.
bool reshaped_strides(const Tensor& x, const Sizes& sizes, Sizes& strides);
// Axis counted from the front. Throws PlanError if there is none.
int64_t wrapped_axis(int64_t axis, int64_t rank);
// Throws PlanError if they do not fit.
Sizes broadcast(const Sizes& a, const Sizes& b);
// Strides of x seen with the (larger) sizes; 0 where it is repeated.
Sizes expanded_strides(const Tensor& x, const Sizes& sizes);

}  // namespace zeropoint
