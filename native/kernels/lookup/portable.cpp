#include "kernels/lookup/lookup.h"

namespace zeropoint {

// The reference again: gathering eight results for one store measured no faster.
void lookup_portable(const LookupArgs& a, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) a.y[i] = a.table[a.x[i]];
}

}  // namespace zeropoint
