#include "kernels/histogram/template.h"
#include "kernels/simd/avx2.h"

namespace zeropoint {

void histogram_avx2(const HistogramArgs& a, int64_t begin, int64_t end) { histogram_with<Avx2>(a, begin, end); }

}  // namespace zeropoint
