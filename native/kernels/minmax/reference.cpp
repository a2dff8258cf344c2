// The specification of minmax, one element at a time. It is never optimized.
#include "kernels/minmax/minmax.h"
#include "kernels/grid_stretches.h"

#include <cmath>

namespace zeropoint {

void minmax_reference(const MinMaxArgs& a, int64_t begin, int64_t end) {
    const auto one = [&](int64_t i, int64_t p) {
        const float x = a.x[i];
        if (std::isnan(x) || x < a.min[p]) a.min[p] = x;
        if (std::isnan(x) || x > a.max[p]) a.max[p] = x;
    };
    for_each(a.grid, begin, end, one);
}

}  // namespace zeropoint
