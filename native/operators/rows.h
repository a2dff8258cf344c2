// Sharing the rows of an output among threads, each with scratch memory of its own.
#pragma once

#include "cpu/machine.h"
#include "cpu/threads.h"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace zeropoint {

// At least `bytes` bytes that only this thread uses, until its next call. Kept from call to call: fresh memory of this
// size would cost more page faults than the work it is for.
inline void* thread_scratch(size_t bytes) {
    thread_local std::unique_ptr<std::max_align_t[]> memory;
    thread_local size_t size = 0;
    if (size < bytes) {
        memory.reset();
        size = bytes;
        memory.reset(new std::max_align_t[bytes / sizeof(std::max_align_t) + 1]);
    }
    return memory.get();
}

// Calls body(begin, end, scratch) on disjoint ranges covering [0, rows). `work`: elements one row touches.
template <class Body>
void over_rows(int64_t rows, int64_t work, size_t scratch_bytes, const Body& body) {
    constexpr int64_t kElements = worth_elements(2);
    const int64_t grain = work >= kElements ? 1 : kElements / (work > 0 ? work : 1);
    parallel_for(rows, grain, [&](int64_t begin, int64_t end) { body(begin, end, thread_scratch(scratch_bytes)); });
}

}  // namespace zeropoint
