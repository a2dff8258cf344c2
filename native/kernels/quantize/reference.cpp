// The specification of quantize, one element at a time. It is never optimized.
#include "kernels/quantize/quantize.h"
#include "kernels/grid_stretches.h"
#include "kernels/conversions.h"
#include "kernels/simd/fused.h"

#include <algorithm>
#include <cmath>

namespace zeropoint {
namespace {

// std::clamp on floats, with NaN passed through.
template <class C>
C clamp_keep_nan(C v, C lo, C hi) {
    return v < lo ? lo : (v > hi ? hi : v);
}

template <class C>
int32_t quantize_one(C x, C inv, C zero_point, const QuantizeArgs& a) {
    const C lo = static_cast<C>(a.qmin), hi = static_cast<C>(a.qmax);
    switch (a.variant) {
        case RoundingVariant::split: return to_int32(clamp_keep_nan(std::nearbyint(x * inv) + zero_point, lo, hi));
        case RoundingVariant::joined: return to_int32(clamp_keep_nan(std::nearbyint(x * inv + zero_point), lo, hi));
        case RoundingVariant::fused: {
            const C v = std::nearbyint(fused(x, inv, zero_point));
            return to_int32(std::isnan(v) ? hi : clamp_keep_nan(v, lo, hi));
        }
        case RoundingVariant::saturating:
            return to_int32(clamp_keep_nan(static_cast<double>(std::nearbyint(x * inv + zero_point)), a.qmin, a.qmax));
        case RoundingVariant::wrapping: {
            const int32_t v = low32(to_int64(std::nearbyint(x * inv + zero_point)));
            return std::clamp(v, static_cast<int32_t>(a.qmin), static_cast<int32_t>(a.qmax));
        }
    }
    return 0;
}

void put(void* y, IntType type, int64_t i, int32_t v) {
    switch (type) {
        case IntType::u8: static_cast<uint8_t*>(y)[i] = static_cast<uint8_t>(v); break;
        case IntType::s8: static_cast<int8_t*>(y)[i] = static_cast<int8_t>(v); break;
        case IntType::s16: static_cast<int16_t*>(y)[i] = static_cast<int16_t>(v); break;
        case IntType::s32: static_cast<int32_t*>(y)[i] = v; break;
    }
}

}  // namespace

void quantize_reference(const QuantizeArgs& a, int64_t begin, int64_t end) {
    const auto one = [&](int64_t i, int64_t p) {
        const int32_t v = a.wide ? quantize_one<double>(a.x[i], static_cast<const double*>(a.inv)[p],
                                                        static_cast<const double*>(a.zero_point)[p], a)
                                 : quantize_one<float>(a.x[i], static_cast<const float*>(a.inv)[p],
                                                       static_cast<const float*>(a.zero_point)[p], a);
        put(a.y, a.dst, i, v);
    };
    for_each(a.grid, begin, end, one);
}

}  // namespace zeropoint
