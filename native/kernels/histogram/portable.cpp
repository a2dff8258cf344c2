#include "kernels/histogram/template.h"
#include "kernels/simd/portable.h"

namespace zeropoint {

void histogram_portable(const HistogramArgs& a, int64_t begin, int64_t end) { histogram_with<Portable>(a, begin, end); }

}  // namespace zeropoint
