// interleave in plain loops: what is left of vectors, and all of it where there are none.
#pragma once

#include "kernels/interleave/interleave.h"

namespace zeropoint {
namespace {

// The planes [first, last). kPlanes: all of them, if their number is known to the compiler; else 0.
template <int64_t kPlanes>
inline void interleave_planes(const InterleaveArgs& a, int64_t begin, int64_t end, int64_t first, int64_t last) {
    const uint8_t* __restrict x = a.x;
    uint8_t* __restrict y = a.y;
    const int64_t planes = kPlanes > 0 ? kPlanes : a.planes;
    for (int64_t i = begin; i < end; ++i)
        for (int64_t p = kPlanes > 0 ? 0 : first; p < (kPlanes > 0 ? kPlanes : last); ++p)
            y[i * planes + p] = x[p * a.stride + i];
}

}  // namespace
}  // namespace zeropoint
