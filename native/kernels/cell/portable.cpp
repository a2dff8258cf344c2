#include "kernels/simd/portable.h"
#include "kernels/cell/template.h"

namespace zeropoint {

void cell_portable(const CellArgs& a, int64_t begin, int64_t end) { cell_with<Portable>(a, begin, end); }

}  // namespace zeropoint
