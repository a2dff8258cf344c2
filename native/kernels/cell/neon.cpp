#include "kernels/simd/neon.h"
#include "kernels/cell/template.h"

namespace zeropoint {

void cell_neon(const CellArgs& a, int64_t begin, int64_t end) { cell_with<Neon>(a, begin, end); }

}  // namespace zeropoint
