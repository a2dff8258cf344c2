// What steps on 8-bit tensors share.
#pragma once

#include "engine/step_table.h"
#include "kernels/types.h"
#include "operators/rounding.h"

#include <utility>

namespace zeropoint {

inline IntType int_type(ElementType type) { return static_cast<IntType>(static_cast<int>(type)); }

inline std::pair<int64_t, int64_t> range_of(ElementType type) {
    return type == ElementType::s8 ? std::pair<int64_t, int64_t>{-128, 127} : std::pair<int64_t, int64_t>{0, 255};
}

// A zero point is one of the values of the type.
inline void require_zero_point(const Tensor& x, int64_t zero_point) {
    const auto [low, high] = range_of(x.type);
    if (zero_point < low || zero_point > high)
        throw PlanError("zero point " + std::to_string(zero_point) + " is outside the range of " + name_of(x.type));
}

// Whether a step that is no layer rounds as QNNPACK: the only thing that its attribute, if it is there, may say.
inline bool rounds_as_qnnpack(StepReader& r, const std::string& attribute) {
    constexpr int64_t kQnnpack = static_cast<int64_t>(Rounding::qnnpack);
    return r.has(attribute.c_str()) && r.integer(attribute.c_str(), kQnnpack, kQnnpack) == kQnnpack;
}

}  // namespace zeropoint
