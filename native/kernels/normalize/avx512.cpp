#include "kernels/normalize/template.h"
#include "kernels/simd/avx512.h"

namespace zeropoint {

void normalize_avx512(const NormalizeArgs& a, int64_t begin, int64_t end) { normalize_with<Avx512>(a, begin, end); }

}  // namespace zeropoint
