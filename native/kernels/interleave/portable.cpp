#include "kernels/interleave/scalar.h"

namespace zeropoint {

void interleave_portable(const InterleaveArgs& a, int64_t begin, int64_t end) {
    switch (a.planes) {
        case 2: return interleave_planes<2>(a, begin, end, 0, 2);
        case 3: return interleave_planes<3>(a, begin, end, 0, 3);
        case 4: return interleave_planes<4>(a, begin, end, 0, 4);
        default: return interleave_planes<0>(a, begin, end, 0, a.planes);
    }
}

}  // namespace zeropoint
