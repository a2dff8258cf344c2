#include "kernels/moments/template.h"
#include "kernels/simd/avx512.h"

namespace zeropoint {

void moments_avx512(const MomentsArgs& a, int64_t begin, int64_t end) { moments_with<Avx512>(a, begin, end); }

}  // namespace zeropoint
