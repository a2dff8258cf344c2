#include "kernels/normalize/template.h"
#include "kernels/simd/neon.h"

namespace zeropoint {

void normalize_neon(const NormalizeArgs& a, int64_t begin, int64_t end) { normalize_with<Neon>(a, begin, end); }

}  // namespace zeropoint
