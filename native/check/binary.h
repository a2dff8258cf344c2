// The binary kernels against their reference.
#pragma once

#include "check/inputs.h"
#include "check/kernels.h"
#include "check/report.h"

#include <cstdint>
#include <vector>

namespace zeropoint::check {

// Whether b is one value, the operation, and the type.
struct BinaryVariant {
    bool one;
    BinaryOperation operation;
    IntType type;
};

inline std::vector<BinaryVariant> binary_variants() {
    std::vector<BinaryVariant> variants;
    for (bool one : {false, true})
        for (BinaryOperation operation : {BinaryOperation::add, BinaryOperation::multiply, BinaryOperation::fixed_add})
            for (IntType type : {IntType::u8, IntType::s8}) variants.push_back({one, operation, type});
    return variants;
}

inline BinaryArgs binary_arguments(Random& random, const BinaryVariant& v) {
    // Powers of two, where ties are exact; ordinary scales; and scales whose sums or products overflow.
    const auto scale = [&] {
        switch (random.below(6)) {
            case 0: return 3e38f;
            case 1: return 1e-40f;
            case 2:
            case 3: return static_cast<float>(random.unit()) + 0.001f;
            default: return std::ldexp(1.0f, static_cast<int>(random.between(-6, 2)));
        }
    };
    const int32_t qmin = v.type == IntType::u8 ? 0 : -128;
    const auto zero_point = [&] { return static_cast<int32_t>(random.between(qmin, qmin + 255)); };
    BinaryArgs p;
    p.operation = v.operation;
    p.type = v.type;
    p.b_is_one = v.one;
    p.a_scale = scale();
    p.b_scale = scale();
    const float a_zero = static_cast<float>(zero_point()), b_zero = static_cast<float>(zero_point());
    const bool add = v.operation == BinaryOperation::add;
    p.a_offset = add ? -(p.a_scale * a_zero) : a_zero;
    p.b_offset = add ? -(p.b_scale * b_zero) : b_zero;
    p.scale = scale();
    p.zero_point = zero_point();
    const int32_t low = random.below(2) != 0 ? p.zero_point : qmin;
    p.low = static_cast<float>(low - p.zero_point);
    p.high = static_cast<float>(qmin + 255 - p.zero_point);
    // Powers of two among them, where sums are halves.
    const auto factor = [&] {
        return random.below(2) != 0 ? 1 << random.below(22) : static_cast<int32_t>(random.below(1 << 22));
    };
    p.a_factor = factor();
    p.b_factor = factor();
    p.shift = static_cast<int32_t>(random.between(14, 31));
    return p;
}

inline void check_binary(Report& report, bool quick) {
    Contest<BinaryFn> contest(report, "binary", &Kernels::binary);
    Random random(41);
    each_case(random, quick, binary_variants(),
              [&](const GridCase& c, const BinaryVariant& v, const std::vector<Span>& parts) {
                  const int64_t n = c.shape.numel();
                  const std::vector<uint8_t> a = integers<uint8_t>(random, n), b = integers<uint8_t>(random, n + 1);
                  BinaryArgs p = binary_arguments(random, v);
                  p.a = a.data();
                  p.b = b.data();
                  compare_parts<uint8_t>(contest, "y", c, parts, n, 1, [&](auto kernel, uint8_t* y, Span part) {
                      p.y = y;
                      kernel(p, part.begin, part.end);
                  });
              });
    contest.close(report);
}

}  // namespace zeropoint::check
