#include "kernels/simd/neon.h"
#include "kernels/attention/centered.h"

namespace zeropoint {
namespace {

struct NeonPairs {
    using I = Neon::I;
    static I add_pairs(I sum, int32_t pair, const int16_t* w) {
        const int16x8x2_t weights = vld2q_s16(w);
        const int16x4_t x = vreinterpret_s16_s32(vdup_n_s32(pair));
        const auto low = [](int16x8_t v) { return vget_low_s16(v); };
        return {vmlal_lane_s16(vmlal_lane_s16(sum.low, low(weights.val[0]), x, 0), low(weights.val[1]), x, 1),
                vmlal_high_lane_s16(vmlal_high_lane_s16(sum.high, weights.val[0], x, 0), weights.val[1], x, 1)};
    }
};

}  // namespace

void attention_neon(const AttentionArgs& a, int64_t begin, int64_t end, uint8_t* memory) {
    attention_with<Neon, CenteredProducts<Neon, NeonPairs>>(a, begin, end, memory);
}

}  // namespace zeropoint
