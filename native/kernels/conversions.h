// Integer conversions that C++ leaves undefined out of range, defined as x86 does them.
#pragma once

#include <cstdint>
#include <cstring>

namespace zeropoint {
namespace {

// Truncation to int64; NaN and out of range give INT64_MIN.
inline int64_t to_int64(double x) {
    return x >= -9223372036854775808.0 && x < 9223372036854775808.0 ? static_cast<int64_t>(x) : INT64_MIN;
}

// Truncation to int32; NaN and out of range give INT32_MIN.
inline int32_t to_int32(double x) {
    return x > -2147483649.0 && x < 2147483648.0 ? static_cast<int32_t>(x) : INT32_MIN;
}

// The low 32 bits of an int64.
inline int32_t low32(int64_t x) {
    const uint32_t bits = static_cast<uint32_t>(static_cast<uint64_t>(x));
    int32_t r;
    std::memcpy(&r, &bits, sizeof r);
    return r;
}

}  // namespace
}  // namespace zeropoint
