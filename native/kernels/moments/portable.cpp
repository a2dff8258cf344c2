#include "kernels/moments/template.h"
#include "kernels/simd/portable.h"

namespace zeropoint {

void moments_portable(const MomentsArgs& a, int64_t begin, int64_t end) { moments_with<Portable>(a, begin, end); }

}  // namespace zeropoint
