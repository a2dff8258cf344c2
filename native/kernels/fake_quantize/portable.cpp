#include "kernels/fake_quantize/template.h"
#include "kernels/simd/portable.h"

namespace zeropoint {

void fake_quantize_portable(const FakeQuantizeArgs& a, int64_t begin, int64_t end) {
    fake_quantize_with<Portable>(a, begin, end);
}

}  // namespace zeropoint
