#include "kernels/simd/portable.h"
#include "kernels/attention/centered.h"

namespace zeropoint {

void attention_portable(const AttentionArgs& a, int64_t begin, int64_t end, uint8_t* memory) {
    attention_with<Portable, CenteredProducts<Portable, Portable>>(a, begin, end, memory);
}

}  // namespace zeropoint
