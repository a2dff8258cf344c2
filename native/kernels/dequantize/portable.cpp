#include "kernels/dequantize/template.h"
#include "kernels/simd/portable.h"

namespace zeropoint {

void dequantize_portable(const DequantizeArgs& a, int64_t begin, int64_t end) {
    dequantize_with<Portable>(a, begin, end);
}

}  // namespace zeropoint
