// lookup: any function of 8-bit values.   y[i] = table[x[i]]
// Bytes, not numbers: for signed values the table stands in the order of their bit patterns, 0 .. 127, -128 .. -1.
#pragma once

#include "kernels/types.h"

namespace zeropoint {

struct LookupArgs {
    const uint8_t* x = nullptr;
    const uint8_t* table = nullptr;  // 256 bytes
    uint8_t* y = nullptr;            // may be x
};

using LookupFn = void (*)(const LookupArgs&, int64_t begin, int64_t end);

// What lookup_avx512 is on CPUs without VBMI; for tests.
void lookup_avx512_without_vbmi(const LookupArgs& a, int64_t begin, int64_t end);

}  // namespace zeropoint
