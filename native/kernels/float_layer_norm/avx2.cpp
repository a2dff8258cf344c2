#include "kernels/simd/avx2.h"
#include "kernels/float_layer_norm/template.h"

namespace zeropoint {

void float_layer_norm_avx2(const FloatLayerNormArgs& a, int64_t begin, int64_t end) {
    float_layer_norm_with<Avx2>(a, begin, end);
}

}  // namespace zeropoint
