// The specification of average_pool, one element at a time. It is never optimized.
#include "kernels/average_pool/average_pool.h"
#include "kernels/simd/fused.h"

#include <cmath>

namespace zeropoint {
namespace {

float rounded(const AveragePoolArgs& a, float sum, float factor) {
    const float zero_point = static_cast<float>(a.zero_point);
    switch (a.averaging) {
        case Averaging::split: return std::nearbyint(sum * factor) + zero_point;
        case Averaging::fused: return std::nearbyint(fused(sum, factor, zero_point));
        case Averaging::divided: return std::nearbyint(sum / factor + zero_point);
        default: return std::nearbyint(sum * factor + zero_point);
    }
}

template <class T>
void run(const AveragePoolArgs& a, int64_t begin, int64_t end) {
    const PoolShape& s = a.shape;
    const T* x = static_cast<const T*>(a.x);
    T* y = static_cast<T*>(a.y);
    for (int64_t row = begin; row < end; ++row) {
        const PoolRow r = pool_row(s, row);
        const Window d = s.depth.windows[r.depth], h = s.height.windows[r.height];
        for (int64_t ow = 0; ow < s.width.out; ++ow)
            for (int64_t c = 0; c < r.channels; ++c) {
                const Window w = s.width.windows[ow];
                int32_t sum = -average_offset(a, r, ow);
                for (int64_t id = d.begin; id < d.end; ++id)
                    for (int64_t ih = h.begin; ih < h.end; ++ih)
                        for (int64_t iw = w.begin; iw < w.end; ++iw)
                            sum += x[r.in_plane + ((id * s.height.in + ih) * s.width.in + iw) * s.pixel + c];
                float v = rounded(a, static_cast<float>(sum), average_factor(a, r, ow));
                v = v > a.qmax ? a.qmax : v;
                v = v < a.qmin ? a.qmin : v;
                y[r.out + ow * s.pixel + c] = static_cast<T>(v);
            }
    }
}

}  // namespace

void average_pool_reference(const AveragePoolArgs& a, int64_t begin, int64_t end, void*) {
    if (a.type == IntType::u8) return run<uint8_t>(a, begin, end);
    return run<int8_t>(a, begin, end);
}

}  // namespace zeropoint
