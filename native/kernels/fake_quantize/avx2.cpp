#include "kernels/fake_quantize/template.h"
#include "kernels/simd/avx2.h"

namespace zeropoint {

void fake_quantize_avx2(const FakeQuantizeArgs& a, int64_t begin, int64_t end) {
    fake_quantize_with<Avx2>(a, begin, end);
}

}  // namespace zeropoint
