#include "kernels/bilinear/template.h"
#include "kernels/simd/avx2.h"

namespace zeropoint {

void bilinear_avx2(const BilinearArgs& a, int64_t begin, int64_t end, void* scratch) {
    bilinear_with<Avx2>(a, begin, end, scratch);
}

}  // namespace zeropoint
