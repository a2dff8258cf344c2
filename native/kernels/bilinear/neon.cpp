#include "kernels/bilinear/template.h"
#include "kernels/simd/neon.h"

namespace zeropoint {

void bilinear_neon(const BilinearArgs& a, int64_t begin, int64_t end, void* scratch) {
    bilinear_with<Neon>(a, begin, end, scratch);
}

}  // namespace zeropoint
