#include "kernels/moments/template.h"
#include "kernels/simd/avx2.h"

namespace zeropoint {

void moments_avx2(const MomentsArgs& a, int64_t begin, int64_t end) { moments_with<Avx2>(a, begin, end); }

}  // namespace zeropoint
