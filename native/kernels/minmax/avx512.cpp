#include "kernels/minmax/template.h"
#include "kernels/simd/avx512.h"

namespace zeropoint {

void minmax_avx512(const MinMaxArgs& a, int64_t begin, int64_t end) { minmax_with<Avx512>(a, begin, end); }

}  // namespace zeropoint
