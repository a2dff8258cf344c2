#include "kernels/minmax/template.h"
#include "kernels/simd/portable.h"

namespace zeropoint {

void minmax_portable(const MinMaxArgs& a, int64_t begin, int64_t end) { minmax_with<Portable>(a, begin, end); }

}  // namespace zeropoint
