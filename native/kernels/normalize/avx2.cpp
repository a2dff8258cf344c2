#include "kernels/normalize/template.h"
#include "kernels/simd/avx2.h"

namespace zeropoint {

void normalize_avx2(const NormalizeArgs& a, int64_t begin, int64_t end) { normalize_with<Avx2>(a, begin, end); }

}  // namespace zeropoint
