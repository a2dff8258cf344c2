// Quantization parameters as callers hold them, and as kernels want them.
#pragma once

#include "kernels/types.h"

#include <cstdint>
#include <vector>

namespace zeropoint {

enum class ScalarType : int { u8 = 0, s8 = 1, s16 = 2, s32 = 3, s64 = 4, f32 = 5, f64 = 6 };

// A contiguous array of any scalar type, owned by the caller.
struct ParameterView {
    const void* data = nullptr;
    ScalarType type = ScalarType::f32;
    int64_t count = 0;

    double at(int64_t i) const;
    bool is_floating() const { return type == ScalarType::f32 || type == ScalarType::f64; }
};

// Throws std::invalid_argument, naming the operation, the index and the value, unless every scale is finite and not
// zero.
void require_invertible(const char* operation, const ParameterView& scale);
// Throws std::invalid_argument unless `view` has a value for every index of the grid.
void require_count(const char* operation, const char* name, const ParameterView& view, const Grid& grid);

// The values as T (float or double), rounded once where they do not fit.
template <class T>
std::vector<T> converted(const ParameterView& view);
// 1 / scale, divided in T.
template <class T>
std::vector<T> inverted(const ParameterView& scale);

// Short segments (a 3x3 filter under per-channel axis 1, say) waste a vector loop on every few elements. If rows share
// their parameters, repeating each parameter `length` times turns the grid into segments of length one, which the
// kernels read as whole vectors. Returns the new grid, and how often to repeat (1: leave everything as it is).
struct Flattened {
    Grid grid;
    int64_t repeat = 1;
};
Flattened flattened(const Grid& grid);
template <class T>
std::vector<T> repeated(std::vector<T> values, int64_t repeat);

}  // namespace zeropoint
