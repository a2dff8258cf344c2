#include "kernels/fake_quantize/template.h"
#include "kernels/simd/neon.h"

namespace zeropoint {

void fake_quantize_neon(const FakeQuantizeArgs& a, int64_t begin, int64_t end) {
    fake_quantize_with<Neon>(a, begin, end);
}

}  // namespace zeropoint
