#include "kernels/simd/neon.h"
#include "kernels/float_layer_norm/template.h"

namespace zeropoint {

void float_layer_norm_neon(const FloatLayerNormArgs& a, int64_t begin, int64_t end) {
    float_layer_norm_with<Neon>(a, begin, end);
}

}  // namespace zeropoint
