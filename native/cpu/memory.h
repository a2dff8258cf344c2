// Large pieces of memory, and advice to the operating system about them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>

namespace zeropoint {

// Outputs at least this large are worth a system call: below it, ordinary 4 kB page faults cost less than they save.
constexpr size_t kHugePageThreshold = size_t{4} << 20;

// Ask for 2 MB pages behind [data, data + bytes) before it is first written, if it is large. Writing 64 MB of fresh 4
// kB pages costs 16384 page faults, more than the arithmetic; with 2 MB pages it costs 32. Harmless if already touched,
// refused or unsupported.
void prepare_output(void* data, size_t bytes);

// What all AlignedBytes that this thread makes may take together, while one of these lives: weights that a file asks
// for become larger when they are packed, by padding.
class MemoryLimit {
public:
    explicit MemoryLimit(int64_t bytes);
    ~MemoryLimit();
    MemoryLimit(const MemoryLimit&) = delete;
    MemoryLimit& operator=(const MemoryLimit&) = delete;

    struct Exceeded : std::runtime_error {
        using std::runtime_error::runtime_error;
    };

private:
    friend class AlignedBytes;
    void take(size_t bytes);

    const int64_t limit_;
    int64_t left_;
    MemoryLimit* const outer_;
};

// Bytes on a boundary of 64. From 2 MB on they begin with a page of 2 MB, if the system has such: what is read again
// and again then needs fewer entries of the translation buffers, and its first use fewer page faults.
class AlignedBytes {
public:
    AlignedBytes() = default;
    // Throws MemoryLimit::Exceeded if there is a limit, and it is less.
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

// What the system hands out at once, and maps: 4 kB, or 16 or 64 on some ARM CPUs.
size_t page_bytes();

// Bytes that are zero, on the boundary of a page. The system gives memory for a page when it is first written.
class ZeroPages {
public:
    ZeroPages() = default;
    // With `huge`, pages of 2 MB where there are such: one is taken whole for the first byte that is written to it.
    // Throws std::bad_alloc if there is not so much room.
    explicit ZeroPages(size_t size, bool huge = false);
    ~ZeroPages();
    ZeroPages(ZeroPages&& other) noexcept;
    ZeroPages& operator=(ZeroPages&& other) noexcept;
    uint8_t* data() const { return memory_; }
    size_t size() const { return size_; }
    // All bytes are zero again, and the system has its memory back.
    void clear();
    // Gives the memory of these whole pages back. What they hold then is not said.
    void give_back(size_t offset, size_t bytes);

private:
    uint8_t* memory_ = nullptr;
    size_t size_ = 0;
};

}  // namespace zeropoint
