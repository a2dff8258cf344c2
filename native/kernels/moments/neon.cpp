#include "kernels/moments/template.h"
#include "kernels/simd/neon.h"

namespace zeropoint {

void moments_neon(const MomentsArgs& a, int64_t begin, int64_t end) { moments_with<Neon>(a, begin, end); }

}  // namespace zeropoint
