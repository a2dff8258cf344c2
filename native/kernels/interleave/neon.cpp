#include "kernels/interleave/scalar.h"

#include <arm_neon.h>

namespace zeropoint {
namespace {

constexpr int64_t kBytes = 16;

// 16 planes from p on, at 16 places from i on: a transposition in four rounds, each of which interleaves the first half
// of the rows with the second.
void sixteen(const InterleaveArgs& a, int64_t p, int64_t i) {
    uint8x16_t rows[kBytes], next[kBytes];
    for (int k = 0; k < kBytes; ++k) rows[k] = vld1q_u8(a.x + (p + k) * a.stride + i);
    for (int round = 0; round < 4; ++round) {
        for (int k = 0; k < kBytes / 2; ++k) {
            next[2 * k] = vzip1q_u8(rows[k], rows[k + kBytes / 2]);
            next[2 * k + 1] = vzip2q_u8(rows[k], rows[k + kBytes / 2]);
        }
        for (int k = 0; k < kBytes; ++k) rows[k] = next[k];
    }
    for (int k = 0; k < kBytes; ++k) vst1q_u8(a.y + (i + k) * a.planes + p, rows[k]);
}

}  // namespace

void interleave_neon(const InterleaveArgs& a, int64_t begin, int64_t end) {
    int64_t i = begin, p = 0;
    const auto plane = [&](int64_t which) { return vld1q_u8(a.x + which * a.stride + i); };
    if (a.planes == 2)
        for (; i + kBytes <= end; i += kBytes) vst2q_u8(a.y + 2 * i, (uint8x16x2_t{{plane(0), plane(1)}}));
    if (a.planes == 3)
        for (; i + kBytes <= end; i += kBytes) vst3q_u8(a.y + 3 * i, (uint8x16x3_t{{plane(0), plane(1), plane(2)}}));
    if (a.planes == 4)
        for (; i + kBytes <= end; i += kBytes)
            vst4q_u8(a.y + 4 * i, (uint8x16x4_t{{plane(0), plane(1), plane(2), plane(3)}}));
    if (a.planes >= kBytes) {
        const int64_t blocks = (end - begin) / kBytes;
        for (; p + kBytes <= a.planes; p += kBytes)
            for (int64_t block = 0; block < blocks; ++block) sixteen(a, p, begin + block * kBytes);
        i = begin + blocks * kBytes;
        interleave_planes<0>(a, begin, i, p, a.planes);
    }
    interleave_planes<0>(a, i, end, 0, a.planes);
}

}  // namespace zeropoint
