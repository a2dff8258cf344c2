#include "kernels/simd/portable.h"
#include "kernels/attention/centered.h"

namespace zeropoint {
namespace {

struct PortablePairs {
    using I = Portable::I;
    static I add_pairs(I sum, int32_t pair, const int16_t* w) {
        int16_t x[2];
        std::memcpy(x, &pair, sizeof x);
        for (int i = 0; i < Portable::W; ++i)
            sum.v[i] = static_cast<int32_t>(static_cast<uint32_t>(sum.v[i]) + static_cast<uint32_t>(x[0] * w[2 * i]) +
                                            static_cast<uint32_t>(x[1] * w[2 * i + 1]));
        return sum;
    }
};

}  // namespace

void attention_portable(const AttentionArgs& a, int64_t begin, int64_t end, uint8_t* memory) {
    attention_with<Portable, CenteredProducts<Portable, PortablePairs>>(a, begin, end, memory);
}

}  // namespace zeropoint
