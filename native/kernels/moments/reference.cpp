// The specification of moments, one element at a time. It is never optimized.
#include "kernels/moments/moments.h"

#include <algorithm>

namespace zeropoint {
namespace {

// The moments of n elements that are `step` apart.
template <class T>
void one(const MomentsArgs& a, int64_t first, int64_t step, int64_t n, int64_t out) {
    const T* x = static_cast<const T*>(a.x) + first;
    int64_t sum = 0, squares = 0;
    for (int64_t i = 0; i < n; ++i) {
        const int64_t q = x[i * step];
        sum += q;
        squares += q * q;
    }
    a.sums[out] = sum;
    if (a.squares != nullptr) a.squares[out] = squares;
}

template <class T>
void run(const MomentsArgs& a, int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
        if (!a.across) {
            one<T>(a, unit * a.length, 1, a.length, unit);
            continue;
        }
        const int64_t image = unit / a.blocks(), first = unit % a.blocks() * MomentsArgs::kColumns;
        for (int64_t c = first; c < std::min(first + MomentsArgs::kColumns, a.length); ++c)
            one<T>(a, image * a.rows * a.length + c, a.length, a.rows, image * a.length + c);
    }
}

}  // namespace

void moments_reference(const MomentsArgs& a, int64_t begin, int64_t end) {
    if (a.type == IntType::u8) return run<uint8_t>(a, begin, end);
    return run<int8_t>(a, begin, end);
}

}  // namespace zeropoint
