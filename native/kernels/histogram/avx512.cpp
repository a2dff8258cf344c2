#include "kernels/histogram/template.h"
#include "kernels/simd/avx512.h"

namespace zeropoint {

void histogram_avx512(const HistogramArgs& a, int64_t begin, int64_t end) { histogram_with<Avx512>(a, begin, end); }

}  // namespace zeropoint
