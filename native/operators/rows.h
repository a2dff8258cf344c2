// Sharing the rows of an output among threads, each with scratch memory of its own.
#pragma once

#include "cpu/machine.h"
#include "cpu/threads.h"
#include "operators/scratch.h"

#include <cstddef>
#include <cstdint>

namespace zeropoint {

// Memory of this thread, kept from call to call: fresh memory of this size would cost more page faults than the work it
// is for.
inline void* thread_scratch(size_t bytes) {
    struct Rows;
    return scratch_of<Rows>(bytes);
}

// Calls body(begin, end, scratch) on disjoint ranges covering [0, rows). `work`: elements one row touches.
template <class Body>
void over_rows(int64_t rows, int64_t work, size_t scratch_bytes, const Body& body) {
    constexpr int64_t kElements = worth_elements(2);
    const int64_t grain = work >= kElements ? 1 : kElements / (work > 0 ? work : 1);
    parallel_for(rows, grain, [&](int64_t begin, int64_t end) { body(begin, end, thread_scratch(scratch_bytes)); });
}

}  // namespace zeropoint
