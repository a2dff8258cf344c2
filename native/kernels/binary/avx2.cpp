#include "kernels/binary/template.h"
#include "kernels/simd/avx2.h"

namespace zeropoint {

void binary_avx2(const BinaryArgs& p, int64_t begin, int64_t end) { binary_with<Avx2>(p, begin, end); }

}  // namespace zeropoint
