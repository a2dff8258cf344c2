#include "kernels/normalize/template.h"
#include "kernels/simd/portable.h"

namespace zeropoint {

void normalize_portable(const NormalizeArgs& a, int64_t begin, int64_t end) { normalize_with<Portable>(a, begin, end); }

}  // namespace zeropoint
