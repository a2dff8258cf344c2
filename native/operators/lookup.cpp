#include "operators/lookup.h"

#include "cpu/machine.h"
#include "cpu/memory.h"
#include "cpu/threads.h"
#include "kernels/registry.h"

namespace zeropoint {

void lookup(const uint8_t* x, const uint8_t* table, uint8_t* y, int64_t n) {
    const LookupFn kernel = kernels().lookup;
    const LookupArgs args{x, table, y};
    if (x != y) prepare_output(y, static_cast<size_t>(n));
    parallel_for(n, kWorthBytes, [&](int64_t begin, int64_t end) { kernel(args, begin, end); });
}

}  // namespace zeropoint
