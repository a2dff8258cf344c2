#include "operators/affine.h"

#include "cpu/machine.h"
#include "cpu/memory.h"
#include "cpu/threads.h"
#include "kernels/registry.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace zeropoint {
namespace {

// Elements per task: a multiple of every kernel's block, large enough to hide the hand-over to another thread.
constexpr int64_t kGrain = worth_elements(2);

size_t size_of(IntType type) {
    switch (type) {
        case IntType::u8:
        case IntType::s8: return 1;
        case IntType::s16: return 2;
        case IntType::s32: return 4;
    }
    return 0;
}

void run_quantize(const QuantizeArgs& args) {
    prepare_output(args.y, static_cast<size_t>(args.grid.numel()) * size_of(args.dst));
    const QuantizeFn kernel = kernels().quantize;
    parallel_for(args.grid.numel(), kGrain, [&](int64_t begin, int64_t end) { kernel(args, begin, end); });
}

// The largest float not above x, or the smallest not below it.
float float_below(double x) {
    const float f = static_cast<float>(x);
    return static_cast<double>(f) > x ? std::nextafter(f, -std::numeric_limits<float>::infinity()) : f;
}
float float_above(double x) { return -float_below(-x); }

ParameterView one(const double& value) { return {&value, ScalarType::f64, 1}; }

}  // namespace

void quantize(const float* x, void* y, IntType dst, const Grid& grid, const ParameterView& scale,
              const ParameterView& zero_point, RoundingVariant variant, double qmin, double qmax) {
    require_count("quantize", "scale", scale, grid);
    require_count("quantize", "zero_point", zero_point, grid);
    require_invertible("quantize", scale);
    const Flattened flat = flattened(grid);
    QuantizeArgs args;
    args.x = x;
    args.y = y;
    args.dst = dst;
    args.grid = flat.grid;
    args.variant = variant;
    args.qmin = qmin;
    args.qmax = qmax;
    args.wide = scale.type == ScalarType::f64;
    const auto run = [&](auto number) {
        using T = decltype(number);
        const std::vector<T> inv = repeated(inverted<T>(scale), flat.repeat);
        const std::vector<T> zero = repeated(converted<T>(zero_point), flat.repeat);
        args.inv = inv.data();
        args.zero_point = zero.data();
        run_quantize(args);
    };
    args.wide ? run(double{}) : run(float{});
}

float inverse_scale(double scale, RoundingVariant variant) {
    require_invertible("quantize", one(scale));
    return variant == RoundingVariant::split ? static_cast<float>(1.0 / scale) : 1.0f / static_cast<float>(scale);
}

void quantize_tensor(const float* x, void* y, IntType dst, int64_t n, double scale, double zero_point,
                     RoundingVariant variant, double qmin, double qmax) {
    const float inv = inverse_scale(scale, variant);
    const float zero = static_cast<float>(zero_point);
    QuantizeArgs args;
    args.x = x;
    args.y = y;
    args.dst = dst;
    args.grid = {1, 1, n, 0, nullptr};
    args.inv = &inv;
    args.zero_point = &zero;
    args.variant = variant;
    args.qmin = qmin;
    args.qmax = qmax;
    run_quantize(args);
}

void dequantize(const void* q, IntType src, float* y, const Grid& grid, const ParameterView& scale,
                const ParameterView& zero_point, bool exact, bool wide) {
    require_count("dequantize", "scale", scale, grid);
    if (zero_point.data != nullptr) require_count("dequantize", "zero_point", zero_point, grid);
    const Flattened flat = flattened(grid);
    const size_t count = static_cast<size_t>(scale.count) * static_cast<size_t>(flat.repeat);
    DequantizeArgs args;
    args.q = q;
    args.src = src;
    args.y = y;
    args.grid = flat.grid;
    args.wide = wide;
    // Up to 16 bits, float32 differences of integers are exact already.
    args.exact = exact && (src == IntType::s32 || zero_point.is_floating());
    if (exact && !args.exact && zero_point.data != nullptr)
        for (int64_t i = 0; i < zero_point.count && !args.exact; ++i)
            args.exact = std::fabs(zero_point.at(i)) > double{1 << 23};

    std::vector<float> scale32, zero32;
    std::vector<double> scale64, zero64;
    if (wide)
        scale64 = repeated(converted<double>(scale), flat.repeat);
    else
        scale32 = repeated(converted<float>(scale), flat.repeat);
    if (args.exact)
        zero64 = zero_point.data != nullptr ? repeated(converted<double>(zero_point), flat.repeat)
                                            : std::vector<double>(count);
    else
        zero32 = zero_point.data != nullptr ? repeated(converted<float>(zero_point), flat.repeat)
                                            : std::vector<float>(count);
    args.scale = wide ? static_cast<const void*>(scale64.data()) : scale32.data();
    args.zero_point = args.exact ? static_cast<const void*>(zero64.data()) : zero32.data();

    prepare_output(y, static_cast<size_t>(grid.numel()) * sizeof(float));
    const DequantizeFn kernel = kernels().dequantize;
    parallel_for(grid.numel(), kGrain, [&](int64_t begin, int64_t end) { kernel(args, begin, end); });
}

void fake_quantize(const float* x, float* y, uint8_t* mask, const Grid& grid, const ParameterView& scale,
                   const ParameterView& zero_point, Beyond beyond, WayBack way_back, double qmin, double qmax) {
    require_count("fake_quantize", "scale", scale, grid);
    require_count("fake_quantize", "zero_point", zero_point, grid);
    require_invertible("fake_quantize", scale);
    const Flattened flat = flattened(grid);
    const std::vector<float> inv = repeated(inverted<float>(scale), flat.repeat);
    const std::vector<float> scale32 = repeated(converted<float>(scale), flat.repeat);
    const std::vector<float> zero = repeated(converted<float>(zero_point), flat.repeat);
    const std::vector<double> exact_zero = repeated(converted<double>(zero_point), flat.repeat);

    constexpr double kExactInFloat = 1 << 23;
    bool exact_in_float =
        !zero_point.is_floating() && std::fabs(qmin) <= kExactInFloat && std::fabs(qmax) <= kExactInFloat;
    for (float z : zero) exact_in_float = exact_in_float && std::fabs(z) <= kExactInFloat;

    FakeQuantizeArgs args;
    args.x = x;
    args.y = y;
    args.mask = mask;
    args.grid = flat.grid;
    args.inv = inv.data();
    args.zero_point = zero.data();
    args.exact_zero_point = exact_zero.data();
    args.scale = scale32.data();
    args.joined = zero_point.is_floating();
    args.beyond = beyond;
    args.way_back = exact_in_float ? WayBack::single : way_back;
    args.qmin = qmin;
    args.qmax = qmax;
    // PyTorch compares integers per channel: v = 2^31 is above qmax = 2^31 - 1. Elsewhere it compares floats, and
    // float(2^31 - 1) is 2^31, so there it counts as inside.
    const bool compares_floats = beyond != Beyond::int64_low;
    args.mask_lo = compares_floats ? static_cast<float>(qmin) : float_above(qmin);
    args.mask_hi = compares_floats ? static_cast<float>(qmax) : float_below(qmax);

    const size_t n = static_cast<size_t>(grid.numel());
    prepare_output(y, n * sizeof(float));
    if (mask != nullptr) prepare_output(mask, n);
    const FakeQuantizeFn kernel = kernels().fake_quantize;
    parallel_for(grid.numel(), kGrain, [&](int64_t begin, int64_t end) { kernel(args, begin, end); });
}

void mask_gradient(const float* dy, const uint8_t* mask, float* dx, int64_t n) {
    prepare_output(dx, static_cast<size_t>(n) * sizeof(float));
    const MaskGradientArgs args{dy, mask, dx};
    const MaskGradientFn kernel = kernels().mask_gradient;
    parallel_for(n, kGrain, [&](int64_t begin, int64_t end) { kernel(args, begin, end); });
}

}  // namespace zeropoint
