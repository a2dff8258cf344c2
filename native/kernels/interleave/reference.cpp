// The specification of interleave, one byte at a time. It is never optimized.
#include "kernels/interleave/interleave.h"

namespace zeropoint {

void interleave_reference(const InterleaveArgs& a, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
        for (int64_t p = 0; p < a.planes; ++p) a.y[i * a.planes + p] = a.x[p * a.stride + i];
}

}  // namespace zeropoint
