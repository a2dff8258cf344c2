#include "kernels/histogram/template.h"
#include "kernels/simd/neon.h"

namespace zeropoint {

void histogram_neon(const HistogramArgs& a, int64_t begin, int64_t end) { histogram_with<Neon>(a, begin, end); }

}  // namespace zeropoint
