// Winograd's matrices along one axis, see winograd.h: for any vector type of the compiler with +, - and <<.
#pragma once

#include "kernels/gemm/winograd.h"

namespace zeropoint {
namespace {

// B' d
template <class Int16s>
inline __attribute__((always_inline)) void transform_inputs(const Int16s (&d)[6], Int16s (&to)[6]) {
    const Int16s even = d[4] - d[2], odd = (d[3] - d[1]) << 1;
    const Int16s even4 = d[4] - (d[2] << 2), odd4 = d[3] - (d[1] << 2);
    to[0] = ((d[0] - d[2]) << 2) + even;
    to[1] = even4 + odd4;
    to[2] = even4 - odd4;
    to[3] = even + odd;
    to[4] = even - odd;
    to[5] = d[5] - d[3] - (odd << 1);
}

// G g
template <class Int16s>
inline __attribute__((always_inline)) void transform_weights(const Int16s (&g)[3], Int16s (&to)[6]) {
    const Int16s ends = g[0] + g[2], far = g[0] + (g[2] << 2), twice = g[1] << 1;
    to[0] = (g[0] << 2) + (g[0] << 1);
    to[1] = (ends + g[1]) << 2;
    to[2] = (ends - g[1]) << 2;
    to[3] = far + twice;
    to[4] = far - twice;
    to[5] = g[2];
}

// A' m
template <class Uint32s>
inline __attribute__((always_inline)) void transform_sums(const Uint32s (&m)[6], Uint32s (&to)[4]) {
    const Uint32s near = m[1] + m[2], near_apart = m[2] - m[1], far = m[3] + m[4], far_apart = m[3] - m[4];
    to[0] = m[0] - near + far;
    to[1] = near_apart + (far_apart << 1);
    to[2] = (far << 2) - near;
    to[3] = near_apart + ((far_apart + m[5] + (m[5] << 1)) << 3);
}

}  // namespace
}  // namespace zeropoint
