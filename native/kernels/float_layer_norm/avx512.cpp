#include "kernels/simd/avx512.h"
#include "kernels/float_layer_norm/template.h"

namespace zeropoint {

void float_layer_norm_avx512(const FloatLayerNormArgs& a, int64_t begin, int64_t end) {
    float_layer_norm_with<Avx512>(a, begin, end);
}

}  // namespace zeropoint
