#include "kernels/pack/template.h"

#include <arm_neon.h>

namespace zeropoint {
namespace {

// sli shifts into a byte and keeps the bits below: what a value has above its own is overwritten or falls out.
struct NeonBulk {
    static int64_t pack4(const uint8_t* values, uint8_t* bytes, int64_t n) {
        int64_t i = 0;
        for (; i + 32 <= n; i += 32) {
            const uint8x16x2_t v = vld2q_u8(values + i);
            vst1q_u8(bytes + i / 2, vsliq_n_u8(v.val[0], v.val[1], 4));
        }
        return i;
    }
    static int64_t pack2(const uint8_t* values, uint8_t* bytes, int64_t n) {
        int64_t i = 0;
        for (; i + 64 <= n; i += 64) {
            const uint8x16x4_t v = vld4q_u8(values + i);
            const uint8x16_t two = vsliq_n_u8(v.val[0], v.val[1], 2), three = vsliq_n_u8(two, v.val[2], 4);
            vst1q_u8(bytes + i / 4, vsliq_n_u8(three, v.val[3], 6));
        }
        return i;
    }
    static int64_t unpack4(const uint8_t* bytes, uint8_t* values, int64_t n) {
        int64_t i = 0;
        for (; i + 32 <= n; i += 32) {
            const uint8x16_t b = vld1q_u8(bytes + i / 2);
            vst2q_u8(values + i, (uint8x16x2_t{{vandq_u8(b, vdupq_n_u8(0x0F)), vshrq_n_u8(b, 4)}}));
        }
        return i;
    }
    static int64_t unpack2(const uint8_t* bytes, uint8_t* values, int64_t n) {
        int64_t i = 0;
        const uint8x16_t mask = vdupq_n_u8(0x03);
        for (; i + 64 <= n; i += 64) {
            const uint8x16_t b = vld1q_u8(bytes + i / 4);
            vst4q_u8(values + i, (uint8x16x4_t{{vandq_u8(b, mask), vandq_u8(vshrq_n_u8(b, 2), mask),
                                                vandq_u8(vshrq_n_u8(b, 4), mask), vshrq_n_u8(b, 6)}}));
        }
        return i;
    }
};

}  // namespace

void pack_neon(const PackArgs& a, int64_t begin, int64_t end) { pack_with<NeonBulk>(a, begin, end); }
void unpack_neon(const PackArgs& a, int64_t begin, int64_t end) { unpack_with<NeonBulk>(a, begin, end); }

}  // namespace zeropoint
