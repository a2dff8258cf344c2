#include "kernels/minmax/template.h"
#include "kernels/simd/neon.h"

namespace zeropoint {

void minmax_neon(const MinMaxArgs& a, int64_t begin, int64_t end) { minmax_with<Neon>(a, begin, end); }

}  // namespace zeropoint
