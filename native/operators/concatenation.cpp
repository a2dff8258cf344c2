#include "operators/concatenation.h"

#include "cpu/machine.h"
#include "cpu/memory.h"
#include "cpu/threads.h"
#include "kernels/registry.h"

#include <algorithm>
#include <cstring>

namespace zeropoint {

void join(const std::vector<JoinedPiece>& pieces, int64_t rows, uint8_t* y) {
    int64_t row_bytes = 0;
    for (const JoinedPiece& piece : pieces) row_bytes += piece.length;
    const int64_t total = rows * row_bytes;
    if (total == 0) return;
    const LookupFn lookup = kernels().lookup;
    prepare_output(y, static_cast<size_t>(total));
    parallel_for(total, kWorthBytes, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin / row_bytes; row * row_bytes < end; ++row) {
            int64_t start = row * row_bytes;  // of the piece, in y
            for (const JoinedPiece& piece : pieces) {
                const int64_t first = std::max(begin, start), last = std::min(end, start + piece.length);
                if (first < last) {
                    const uint8_t* x = piece.x + row * piece.length + (first - start);
                    if (piece.table != nullptr)
                        lookup({x, piece.table, y + first}, 0, last - first);
                    else
                        std::memcpy(y + first, x, static_cast<size_t>(last - first));
                }
                start += piece.length;
            }
        }
    });
}

}  // namespace zeropoint
