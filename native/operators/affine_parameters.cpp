#include "operators/affine_parameters.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace zeropoint {
namespace {

template <class T>
T element(const void* data, int64_t i) {
    return static_cast<const T*>(data)[i];
}

template <class T>
T typed(const ParameterView& v, int64_t i) {
    switch (v.type) {
        case ScalarType::u8: return static_cast<T>(element<uint8_t>(v.data, i));
        case ScalarType::s8: return static_cast<T>(element<int8_t>(v.data, i));
        case ScalarType::s16: return static_cast<T>(element<int16_t>(v.data, i));
        case ScalarType::s32: return static_cast<T>(element<int32_t>(v.data, i));
        case ScalarType::s64: return static_cast<T>(element<int64_t>(v.data, i));
        case ScalarType::f32: return static_cast<T>(element<float>(v.data, i));
        case ScalarType::f64: return static_cast<T>(element<double>(v.data, i));
    }
    return T{};
}

}  // namespace

double ParameterView::at(int64_t i) const { return typed<double>(*this, i); }

void require_invertible(const char* operation, const ParameterView& scale) {
    for (int64_t i = 0; i < scale.count; ++i) {
        const double s = scale.at(i);
        if (std::isfinite(s) && s != 0.0) continue;
        throw std::invalid_argument(std::string(operation) + ": every scale must be finite and not zero, got " +
                                    std::to_string(s) + (scale.count > 1 ? " at index " + std::to_string(i) : ""));
    }
}

void require_count(const char* operation, const char* name, const ParameterView& view, const Grid& grid) {
    if (grid.numel() == 0) return;
    int64_t last = 0;
    if (grid.row_base != nullptr)
        last = *std::max_element(grid.row_base, grid.row_base + grid.rows);
    else
        last = (grid.rows - 1) * grid.row_stride;
    const int64_t needed = last + grid.segments;
    if (view.count < needed)
        throw std::invalid_argument(std::string(operation) + ": " + name + " has " + std::to_string(view.count) +
                                    " values, " + std::to_string(needed) + " are needed");
}

template <class T>
std::vector<T> converted(const ParameterView& view) {
    std::vector<T> r(static_cast<size_t>(view.count));
    for (int64_t i = 0; i < view.count; ++i) r[static_cast<size_t>(i)] = typed<T>(view, i);
    return r;
}

template <class T>
std::vector<T> inverted(const ParameterView& scale) {
    std::vector<T> r = converted<T>(scale);
    for (T& s : r) s = T{1} / s;
    return r;
}

Flattened flattened(const Grid& grid) {
    constexpr int64_t kShort = 32, kFewRows = 4;
    const bool pays = grid.length > 1 && grid.length < kShort && grid.segments > 1 && grid.rows >= kFewRows &&
                      grid.row_base == nullptr && grid.row_stride == 0;
    if (!pays) return {grid, 1};
    Grid flat = grid;
    flat.segments = grid.segments * grid.length;
    flat.length = 1;
    return {flat, grid.length};
}

template <class T>
std::vector<T> repeated(std::vector<T> values, int64_t repeat) {
    if (repeat == 1) return values;
    std::vector<T> r;
    r.reserve(values.size() * static_cast<size_t>(repeat));
    for (T v : values) r.insert(r.end(), static_cast<size_t>(repeat), v);
    return r;
}

template std::vector<float> converted(const ParameterView&);
template std::vector<double> converted(const ParameterView&);
template std::vector<float> inverted(const ParameterView&);
template std::vector<double> inverted(const ParameterView&);
template std::vector<float> repeated(std::vector<float>, int64_t);
template std::vector<double> repeated(std::vector<double>, int64_t);

}  // namespace zeropoint
