#include "kernels/fake_quantize/template.h"
#include "kernels/simd/avx512.h"

namespace zeropoint {

void fake_quantize_avx512(const FakeQuantizeArgs& a, int64_t begin, int64_t end) {
    fake_quantize_with<Avx512>(a, begin, end);
}

}  // namespace zeropoint
