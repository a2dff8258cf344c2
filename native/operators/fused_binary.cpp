#include "operators/fused_binary.h"

#include "kernels/registry.h"

namespace zeropoint {

void combine(const MatmulOutput& output, const uint8_t* made, uint8_t* y, const int64_t* y_rows, int64_t m,
             int64_t columns) {
    const BinaryFn kernel = kernels().binary;
    const uint8_t* const b = static_cast<const uint8_t*>(output.then->b) + (y - static_cast<uint8_t*>(output.y));
    BinaryArgs p = *output.then;
    for (int64_t i = 0; i < m;) {
        if (y_rows[i] < 0) {
            ++i;
            continue;
        }
        // Rows that are neighbours in the output are one.
        int64_t next = i + 1;
        while (next < m && y_rows[next] == y_rows[next - 1] + columns) ++next;
        p.a = made + i * columns;
        p.b = b + y_rows[i];
        p.y = y + y_rows[i];
        kernel(p, 0, (next - i) * columns);
        i = next;
    }
}

}  // namespace zeropoint
