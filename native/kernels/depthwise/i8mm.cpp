// Of the activations as they are stored with usdot; the other shapes are those of a level below.
#include "kernels/depthwise/depthwise.h"
#include "kernels/depthwise/in_place_arm.h"

namespace zeropoint {

const DepthwiseKernel& depthwise_neon();

namespace {

struct Usdot {
    static constexpr int32_t kOffset = 0;
    static uint8_t flip(bool is_signed) { return is_signed ? 0x80 : 0; }
    static int32x4_t dot(int32x4_t sum, uint8x16_t x, int8x16_t w) { return vusdotq_s32(sum, x, w); }
};

}  // namespace

const DepthwiseKernel& depthwise_i8mm() {
    static const DepthwiseKernel kernel = {depthwise_neon().convert, depthwise_neon().multiply, &in_place_arm<Usdot>()};
    return kernel;
}

}  // namespace zeropoint
