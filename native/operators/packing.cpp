#include "operators/packing.h"

#include "cpu/machine.h"
#include "cpu/memory.h"
#include "cpu/threads.h"
#include "kernels/registry.h"

namespace zeropoint {
namespace {

void over_rows(PackFn kernel, const PackArgs& args, int64_t rows) {
    const int64_t grain = args.columns >= kWorthBytes ? 1 : kWorthBytes / (args.columns > 0 ? args.columns : 1);
    parallel_for(rows, grain, [&](int64_t begin, int64_t end) { kernel(args, begin, end); });
}

}  // namespace

void pack_rows(const uint8_t* values, uint8_t* bytes, int64_t rows, int64_t columns, int bits) {
    const PackArgs args{values, bytes, columns, bits};
    prepare_output(bytes, static_cast<size_t>(rows * args.packed_columns()));
    over_rows(kernels().pack, args, rows);
}

void unpack_rows(const uint8_t* bytes, uint8_t* values, int64_t rows, int64_t columns, int bits) {
    const PackArgs args{bytes, values, columns, bits};
    prepare_output(values, static_cast<size_t>(rows * columns));
    over_rows(kernels().unpack, args, rows);
}

}  // namespace zeropoint
