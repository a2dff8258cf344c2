#include "kernels/binary/template.h"
#include "kernels/simd/portable.h"

namespace zeropoint {

void binary_portable(const BinaryArgs& p, int64_t begin, int64_t end) { binary_with<Portable>(p, begin, end); }

}  // namespace zeropoint
