// Large pieces of memory, and advice to the operating system about them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace zeropoint {

// Outputs at least this large are worth a system call: below it, ordinary 4 kB page faults cost less than they save.
constexpr size_t kHugePageThreshold = size_t{4} << 20;

// Ask for 2 MB pages behind [data, data + bytes) before it is first written, if it is large. Writing 64 MB of fresh 4
// kB pages costs 16384 page faults, more than the arithmetic; with 2 MB pages it costs 32. Harmless if already touched,
// refused or unsupported.
void prepare_output(void* data, size_t bytes);

// Bytes on a boundary of 64. From 2 MB on they begin with a page of 2 MB, if the system has such: what is read again
// and again then needs fewer entries of the translation buffers, and its first use fewer page faults.
class AlignedBytes {
public:
    AlignedBytes() = default;
    explicit AlignedBytes(size_t size, bool zero = true);
    uint8_t* data() const { return memory_.get(); }
    size_t size() const { return size_; }

private:
    struct Release {
        size_t boundary;
        void operator()(uint8_t* memory) const;
    };
    std::unique_ptr<uint8_t[], Release> memory_;
    size_t size_ = 0;
};

}  // namespace zeropoint
