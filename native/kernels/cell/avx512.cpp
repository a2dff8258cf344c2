#include "kernels/simd/avx512.h"
#include "kernels/cell/template.h"

namespace zeropoint {

void cell_avx512(const CellArgs& a, int64_t begin, int64_t end) { cell_with<Avx512>(a, begin, end); }

}  // namespace zeropoint
