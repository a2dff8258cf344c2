// mask_gradient for any vector type V of simd/.
#pragma once

#include "kernels/mask_gradient/mask_gradient.h"

namespace zeropoint {
namespace {

template <class V>
void mask_gradient_with(const MaskGradientArgs& a, int64_t begin, int64_t end) {
    int64_t i = begin;
    for (; i + V::W <= end; i += V::W)
        V::store(a.dx + i, V::mul(V::load(a.dy + i), V::to_float(V::load_int(a.mask + i))));
    for (; i < end; ++i) a.dx[i] = a.dy[i] * static_cast<float>(a.mask[i]);
}

}  // namespace
}  // namespace zeropoint
