// average_pool: the mean of each window, in steps of the quantized type.
//
//   sum = sum(x[i] for i in window(o)) - inputs * zero_point       exact, in int32: padding counts as the value 0
//   m   = scale / (scale * divisor)                                float32; scale is 1, or as QNNPACK has it that of x
//   y   = clamp(round(sum * m, zero_point), qmin, qmax)            float32
//
// PyTorch 2.13 rounds in five ways, according to operator and layout. They differ at ties only: a 2x2 window of 3, 3,
// 4, 4 with zero_point 1 averages to 3.5, which is rne(2.5) + 1 = 3 `split`, and rne(2.5 + 1) = 4 `joined`.
#pragma once

#include "kernels/pooling_windows.h"

namespace zeropoint {

enum class Averaging : int {
    split = 0,    // rne(sum * m) + zero_point
    joined = 1,   // rne(sum * m + zero_point)
    fused = 2,    // rne(fma(sum, m, zero_point))
    chained = 3,  // as joined, m = ((1 / depth) / height) / width
    divided = 4,  // as joined, sum / divisor instead of sum * m
};

struct AveragePoolArgs {
    const void* x = nullptr;
    void* y = nullptr;
    IntType type = IntType::u8;  // u8 or s8
    PoolShape shape;             // of step 1
    Averaging averaging = Averaging::joined;
    int64_t divisor = 0;  // 0: the product of the axes' divisors
    float scale = 1;
    int32_t zero_point = 0;
    float qmin = 0, qmax = 255;

    // int32 elements of scratch memory that a call needs, with room to read past the end.
    static constexpr int64_t kRoom = 64;
    int64_t scratch() const { return (shape.width.in + shape.width.out) * shape.channels + kRoom; }
};

namespace {  // internal linkage: this header is compiled once per instruction set

// m, or the divisor itself.
inline float average_factor(const AveragePoolArgs& a, const PoolRow& r, int64_t o) {
    const int64_t d = a.shape.depth.divisors[r.depth], h = a.shape.height.divisors[r.height],
                  w = a.shape.width.divisors[o];
    if (a.averaging == Averaging::chained)
        return 1.0f / static_cast<float>(d) / static_cast<float>(h) / static_cast<float>(w);
    const float all = static_cast<float>(a.divisor != 0 ? a.divisor : d * h * w);
    return a.averaging == Averaging::divided ? all : a.scale / (a.scale * all);
}

// What zero points add to the sum.
inline int32_t average_offset(const AveragePoolArgs& a, const PoolRow& r, int64_t o) {
    const Window d = a.shape.depth.windows[r.depth], h = a.shape.height.windows[r.height], w = a.shape.width.windows[o];
    return static_cast<int32_t>((d.end - d.begin) * (h.end - h.begin) * (w.end - w.begin) * a.zero_point);
}

}  // namespace

// The output rows [begin, end).
using AveragePoolFn = void (*)(const AveragePoolArgs&, int64_t begin, int64_t end, void* scratch);

}  // namespace zeropoint
