#include "kernels/simd/neon.h"
#include "kernels/weight_only/template.h"

namespace zeropoint {
namespace {

// A byte q below the exponent of 2^23 is the float 2^23 + q: widening it and interleaving it with constants makes
// floats of bytes without a conversion, and the subtraction of the zero point takes the 2^23 away.
struct Weights {
    static constexpr float kBias = 8388608.0f;

    static int place(int n) { return n; }
    static Neon::F load(const float* w) { return Neon::load(w); }
    static Neon::F load(const uint16_t* w) { return Neon::load_half(w); }
    static Neon::F biased(uint16x8_t q) {
        const uint16x8_t exponent = vdupq_n_u16(0x4B00);
        return {vreinterpretq_f32_u16(vzip1q_u16(q, exponent)), vreinterpretq_f32_u16(vzip2q_u16(q, exponent))};
    }
    // 16 outputs from vector v on.
    template <class Use>
    __attribute__((always_inline)) static void widened(uint8x16_t q, int input, int v, const Use& use) {
        use(input, v, biased(vmovl_u8(vget_low_u8(q))));
        use(input, v + 1, biased(vmovl_high_u8(q)));
    }
    template <class Use>
    __attribute__((always_inline)) static void bytes(const uint8_t* p, const Use& use) {
        widened(vld1q_u8(p), 0, 0, use);
        widened(vld1q_u8(p + 16), 0, 2, use);
    }
    template <class Use>
    __attribute__((always_inline)) static void nibbles(const uint8_t* p, const Use& use) {
        const uint8x16_t low = vld1q_u8(p), high = vld1q_u8(p + 16), mask = vdupq_n_u8(15);
        widened(vandq_u8(low, mask), 0, 0, use);
        widened(vandq_u8(high, mask), 0, 2, use);
        widened(vshrq_n_u8(low, 4), 1, 0, use);
        widened(vshrq_n_u8(high, 4), 1, 2, use);
    }
    template <class Use>
    __attribute__((always_inline)) static void halves(const uint16_t* p, const Use& use) {
#pragma GCC unroll 4
        for (int v = 0; v < 4; ++v) use(0, v, load(p + v * Neon::W));
    }
};

}  // namespace

const WeightOnlyKernel& weight_only_neon() {
    static const WeightOnlyKernel kernel = {Weights::place, WeightOnly<Neon, Weights>::multiply};
    return kernel;
}

}  // namespace zeropoint
