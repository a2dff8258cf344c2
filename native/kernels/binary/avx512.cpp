#include "kernels/binary/template.h"
#include "kernels/simd/avx512.h"

namespace zeropoint {

void binary_avx512(const BinaryArgs& p, int64_t begin, int64_t end) { binary_with<Avx512>(p, begin, end); }

}  // namespace zeropoint
