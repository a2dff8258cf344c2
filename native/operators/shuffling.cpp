#include "operators/shuffling.h"

#include "cpu/memory.h"
#include "kernels/registry.h"
#include "operators/rows.h"

namespace zeropoint {
namespace {

void interleave_row(const uint8_t* x, uint8_t* y, const Interleave& a) {
    kernels().interleave({x, a.group_stride, a.groups, y}, 0, a.length);
}

// kGroups 0: any number. Numbers known to the compiler become vector instructions.
template <int64_t kGroups>
void interleave_words(const uint32_t* __restrict x, uint32_t* __restrict y, const Interleave& a) {
    const int64_t groups = kGroups > 0 ? kGroups : a.groups;
    for (int64_t k = 0; k < a.length; ++k)
        for (int64_t g = 0; g < groups; ++g) y[k * groups + g] = x[g * a.group_stride + k];
}

void interleave_row(const uint32_t* x, uint32_t* y, const Interleave& a) {
    switch (a.groups) {
        case 2: return interleave_words<2>(x, y, a);
        case 3: return interleave_words<3>(x, y, a);
        case 4: return interleave_words<4>(x, y, a);
        case 8: return interleave_words<8>(x, y, a);
        default: return interleave_words<0>(x, y, a);
    }
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
            interleave_row(x, y, a);
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
