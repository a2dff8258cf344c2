#include "kernels/bilinear/template.h"
#include "kernels/simd/portable.h"

namespace zeropoint {

void bilinear_portable(const BilinearArgs& a, int64_t begin, int64_t end, void* scratch) {
    bilinear_with<Portable>(a, begin, end, scratch);
}

}  // namespace zeropoint
