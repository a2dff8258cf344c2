#include "kernels/minmax/template.h"
#include "kernels/simd/avx2.h"

namespace zeropoint {

void minmax_avx2(const MinMaxArgs& a, int64_t begin, int64_t end) { minmax_with<Avx2>(a, begin, end); }

}  // namespace zeropoint
