#include "kernels/simd/avx2.h"
#include "kernels/cell/template.h"

namespace zeropoint {

void cell_avx2(const CellArgs& a, int64_t begin, int64_t end) { cell_with<Avx2>(a, begin, end); }

}  // namespace zeropoint
