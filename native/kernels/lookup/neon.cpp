#include "kernels/lookup/lookup.h"

#include <arm_neon.h>

namespace zeropoint {

// The table as four parts of 64 entries, which tbl and tbx look up. Both look at nothing but numbers below 64: tbl
// gives 0 for the others, tbx leaves what was there.
void lookup_neon(const LookupArgs& a, int64_t begin, int64_t end) {
    const uint8x16x4_t parts[4] = {vld1q_u8_x4(a.table), vld1q_u8_x4(a.table + 64), vld1q_u8_x4(a.table + 128),
                                   vld1q_u8_x4(a.table + 192)};
    const uint8x16_t step = vdupq_n_u8(64);
    int64_t i = begin;
    for (; i + 16 <= end; i += 16) {
        uint8x16_t x = vld1q_u8(a.x + i), y = vqtbl4q_u8(parts[0], x);
        for (int k = 1; k < 4; ++k) {
            x = vsubq_u8(x, step);
            y = vqtbx4q_u8(y, parts[k], x);
        }
        vst1q_u8(a.y + i, y);
    }
    for (; i < end; ++i) a.y[i] = a.table[a.x[i]];
}

}  // namespace zeropoint
