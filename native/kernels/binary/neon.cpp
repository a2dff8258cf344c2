#include "kernels/binary/template.h"
#include "kernels/simd/neon.h"

namespace zeropoint {

void binary_neon(const BinaryArgs& p, int64_t begin, int64_t end) { binary_with<Neon>(p, begin, end); }

}  // namespace zeropoint
