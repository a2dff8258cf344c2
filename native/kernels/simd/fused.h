// a * b + c rounded once, on every CPU.
#pragma once

#include <cstdint>
#include <cstring>

namespace zeropoint {
namespace {

// Without an instruction for it the C library's function is slow, and that of zig rounds twice. And so: the product is
// exact in double; their sum, where it is not, is rounded to the odd one of its two neighbours, which has all that the
// rounding to float depends on.
[[maybe_unused]] inline float fused(float a, float b, float c) {
#if defined(__FMA__) || defined(__aarch64__)
    return __builtin_fmaf(a, b, c);
#else
    const double product = static_cast<double>(a) * b, sum = product + c, rest = sum - product;
    const double error = (product - (sum - rest)) + (c - rest);
    int64_t bits = 0;
    std::memcpy(&bits, &sum, sizeof bits);
    const int64_t outward = (error > 0) == (sum > 0) ? 1 : -1;  // errors of NaN and infinities are NaN
    bits += ((error > 0) | (error < 0)) && (bits & 1) == 0 ? outward : 0;
    double odd = 0;
    std::memcpy(&odd, &bits, sizeof odd);
    return static_cast<float>(odd);
#endif
}

// As kernels of polynomials compute where an error is allowed for (operators/function_curve.h): in WebAssembly the
// product is rounded, too.
[[maybe_unused]] inline float nearly_fused(float a, float b, float c) {
#if defined(__wasm__)
    return a * b + c;
#else
    return fused(a, b, c);
#endif
}
[[maybe_unused]] inline double fused(double a, double b, double c) { return __builtin_fma(a, b, c); }

}  // namespace
}  // namespace zeropoint
