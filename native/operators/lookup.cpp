#include "operators/lookup.h"

#include "cpu/machine.h"
#include "cpu/memory.h"
#include "cpu/threads.h"
#include "kernels/registry.h"

#include <algorithm>

namespace zeropoint {

void lookup(const uint8_t* x, const uint8_t* table, uint8_t* y, int64_t n) {
    const LookupFn kernel = kernels().lookup;
    const LookupArgs args{x, table, y};
    if (x != y) prepare_output(y, static_cast<size_t>(n));
    parallel_for(n, kWorthBytes, [&](int64_t begin, int64_t end) { kernel(args, begin, end); });
}

void lookup_rows(const uint8_t* x, const uint8_t* table, int64_t tables, uint8_t* y, int64_t rows, int64_t length) {
    const LookupFn kernel = kernels().lookup;
    if (x != y) prepare_output(y, static_cast<size_t>(rows * length));
    parallel_for(rows, std::max<int64_t>(1, kWorthBytes / std::max<int64_t>(length, 1)),
                 [&](int64_t begin, int64_t end) {
                     for (int64_t r = begin; r < end; ++r)
                         kernel({x + r * length, table + 256 * (r % tables), y + r * length}, 0, length);
                 });
}

}  // namespace zeropoint
