#include "operators/fused_output.h"

#include "kernels/registry.h"

#include <cstring>

namespace zeropoint {
namespace {

// visit(i, n) for n rows from i on that are there, and neighbours in the output.
template <class Visit>
void each_run(const int64_t* y_rows, int64_t m, int64_t columns, const Visit& visit) {
    for (int64_t i = 0; i < m;) {
        int64_t next = i + 1;
        if (y_rows[i] >= 0) {
            while (next < m && y_rows[next] == y_rows[next - 1] + columns) ++next;
            visit(i, next - i);
        }
        i = next;
    }
}

// Rows of a length that the compiler knows are copied without a call.
template <int64_t kColumns>
void spread(const uint8_t* made, uint8_t* y, const int64_t* y_rows, int64_t m) {
    for (int64_t i = 0; i < m; ++i)
        if (y_rows[i] >= 0) std::memcpy(y + y_rows[i], made + i * kColumns, kColumns);
}

}  // namespace

void look_up_apart(const uint8_t* table, uint8_t* made, uint8_t* y, const int64_t* y_rows, int64_t m, int64_t columns) {
    kernels().lookup({made, table, made}, 0, m * columns);
    switch (columns) {
        case 16: return spread<16>(made, y, y_rows, m);
        case 32: return spread<32>(made, y, y_rows, m);
        case 64: return spread<64>(made, y, y_rows, m);
        default:
            for (int64_t i = 0; i < m; ++i)
                if (y_rows[i] >= 0) std::memcpy(y + y_rows[i], made + i * columns, static_cast<size_t>(columns));
    }
}

void look_up(const uint8_t* table, uint8_t* y, const int64_t* y_rows, int64_t m, int64_t columns) {
    const LookupFn kernel = kernels().lookup;
    each_run(y_rows, m, columns,
             [&](int64_t i, int64_t n) { kernel({y + y_rows[i], table, y + y_rows[i]}, 0, n * columns); });
}

void combine(const MatmulOutput& output, uint8_t* made, uint8_t* y, const int64_t* y_rows, int64_t m, int64_t columns) {
    const BinaryFn kernel = kernels().binary;
    const uint8_t* const b = static_cast<const uint8_t*>(output.then->b) + (y - static_cast<uint8_t*>(output.y));
    if (output.table != nullptr) kernels().lookup({made, output.table, made}, 0, m * columns);
    BinaryArgs p = *output.then;
    each_run(y_rows, m, columns, [&](int64_t i, int64_t n) {
        p.a = made + i * columns;
        p.b = b + y_rows[i];
        p.y = y + y_rows[i];
        kernel(p, 0, n * columns);
    });
}

}  // namespace zeropoint
