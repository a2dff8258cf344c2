// The specification of max_pool, one element at a time. It is never optimized.
#include "kernels/max_pool/max_pool.h"

#include <limits>

namespace zeropoint {
namespace {

template <class T>
void run(const MaxPoolArgs& a, int64_t begin, int64_t end) {
    const PoolShape& s = a.shape;
    const T* x = static_cast<const T*>(a.x);
    T* y = static_cast<T*>(a.y);
    for (int64_t row = begin; row < end; ++row) {
        const PoolRow r = pool_row(s, row);
        const Window d = s.depth.windows[r.depth], h = s.height.windows[r.height];
        for (int64_t ow = 0; ow < s.width.out; ++ow)
            for (int64_t c = 0; c < r.channels; ++c) {
                const Window w = s.width.windows[ow];
                T largest = std::numeric_limits<T>::lowest();
                for (int64_t id = d.begin; id < d.end; id += s.depth.step)
                    for (int64_t ih = h.begin; ih < h.end; ih += s.height.step)
                        for (int64_t iw = w.begin; iw < w.end; iw += s.width.step) {
                            const T v = x[r.in_plane + ((id * s.height.in + ih) * s.width.in + iw) * s.pixel + c];
                            if (v > largest) largest = v;
                        }
                y[r.out + ow * s.pixel + c] = largest;
            }
    }
}

}  // namespace

void max_pool_reference(const MaxPoolArgs& a, int64_t begin, int64_t end, void*) {
    switch (a.type) {
        case IntType::u8: return run<uint8_t>(a, begin, end);
        case IntType::s8: return run<int8_t>(a, begin, end);
        default: return run<int32_t>(a, begin, end);
    }
}

}  // namespace zeropoint
