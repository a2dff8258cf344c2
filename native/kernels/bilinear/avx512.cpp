#include "kernels/bilinear/template.h"
#include "kernels/simd/avx512.h"

namespace zeropoint {

void bilinear_avx512(const BilinearArgs& a, int64_t begin, int64_t end, void* scratch) {
    bilinear_with<Avx512>(a, begin, end, scratch);
}

}  // namespace zeropoint
