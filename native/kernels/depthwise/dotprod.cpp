// Of the activations as they are stored with sdot; the other shapes are those of the level below.
#include "kernels/depthwise/depthwise.h"
#include "kernels/depthwise/in_place_arm.h"

namespace zeropoint {

const DepthwiseKernel& depthwise_neon();

namespace {

struct Sdot {
    static constexpr int32_t kOffset = -128;
    static uint8_t flip(bool is_signed) { return is_signed ? 0 : 0x80; }
    static int32x4_t dot(int32x4_t sum, uint8x16_t x, int8x16_t w) { return vdotq_s32(sum, w, vreinterpretq_s8_u8(x)); }
};

}  // namespace

const DepthwiseKernel& depthwise_dotprod() {
    static const DepthwiseKernel kernel = {depthwise_neon().convert, depthwise_neon().multiply, &in_place_arm<Sdot>()};
    return kernel;
}

}  // namespace zeropoint
