// Memory that a thread keeps from call to call, so that the hot path allocates nothing after the first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace zeropoint {

// At least `bytes` bytes on a 64-byte boundary that only this thread uses, until its next call with the same Tag.
template <class Tag>
uint8_t* scratch_of(size_t bytes) {
    thread_local std::unique_ptr<uint8_t[]> memory;
    thread_local size_t size = 0;
    constexpr size_t kLine = 64;
    if (size < bytes + kLine) {
        memory.reset();
        size = 0;
        memory.reset(new uint8_t[bytes + kLine]);
        size = bytes + kLine;
    }
    const uintptr_t at = reinterpret_cast<uintptr_t>(memory.get());
    return memory.get() + ((at + kLine - 1) / kLine * kLine - at);
}

}  // namespace zeropoint
