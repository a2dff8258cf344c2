#include "operators/shuffling.h"

#include "cpu/memory.h"
#include "operators/rows.h"

namespace zeropoint {
namespace {

// kGroups 0: any number. Numbers known to the compiler become vector instructions.
template <int64_t kGroups, class T>
void interleave_row(const T* __restrict x, T* __restrict y, int64_t groups_, int64_t stride, int64_t length) {
    const int64_t groups = kGroups > 0 ? kGroups : groups_;
    for (int64_t k = 0; k < length; ++k)
        for (int64_t g = 0; g < groups; ++g) y[k * groups + g] = x[g * stride + k];
}

template <class T>
void run(const Interleave& a) {
    const int64_t row = a.groups * a.length, rows = a.counts[0] * a.counts[1] * a.counts[2];
    prepare_output(a.y, static_cast<size_t>(rows * row) * sizeof(T));
    over_rows(rows, row, 0, [&](int64_t begin, int64_t end, void*) {
        int64_t third = begin % a.counts[2], second = begin / a.counts[2] % a.counts[1];
        int64_t first = begin / a.counts[2] / a.counts[1];
        T* y = static_cast<T*>(a.y) + begin * row;
        for (int64_t r = begin; r < end; ++r, y += row) {
            const T* x =
                static_cast<const T*>(a.x) + first * a.strides[0] + second * a.strides[1] + third * a.strides[2];
            switch (a.groups) {
                case 2: interleave_row<2>(x, y, 2, a.group_stride, a.length); break;
                case 3: interleave_row<3>(x, y, 3, a.group_stride, a.length); break;
                case 4: interleave_row<4>(x, y, 4, a.group_stride, a.length); break;
                case 8: interleave_row<8>(x, y, 8, a.group_stride, a.length); break;
                default: interleave_row<0>(x, y, a.groups, a.group_stride, a.length);
            }
            if (++third < a.counts[2]) continue;
            third = 0;
            if (++second < a.counts[1]) continue;
            second = 0;
            ++first;
        }
    });
}

}  // namespace

void interleave(const Interleave& a) {
    if (a.bytes == 4) return run<uint32_t>(a);
    return run<uint8_t>(a);
}

}  // namespace zeropoint
