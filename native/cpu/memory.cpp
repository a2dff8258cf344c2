#include "cpu/memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#if (defined(__unix__) && !defined(__EMSCRIPTEN__)) || defined(__APPLE__)
#define ZP_MAPS
#include <sys/mman.h>
#include <unistd.h>
#elif defined(_WIN32)
#include <windows.h>
#endif

namespace zeropoint {
namespace {

constexpr size_t kLine = 64, kHuge = size_t{2} << 20;
#if defined(__linux__)
constexpr size_t kLargeBoundary = kHuge;
#else
constexpr size_t kLargeBoundary = kLine;  // nobody is asked for pages of 2 MB
#endif
// What lies beside a piece: sums, zero points and sizes of packed weights.
constexpr size_t kBeside = 1024;

thread_local MemoryLimit* t_limit = nullptr;

// 2 MB pages for all of them that lie in [data, data + bytes).
void advise_huge(void* data, size_t bytes) {
#if defined(__linux__)
    const uintptr_t begin = (reinterpret_cast<uintptr_t>(data) + kHuge - 1) & ~(kHuge - 1);
    const uintptr_t end = (reinterpret_cast<uintptr_t>(data) + bytes) & ~(kHuge - 1);
    if (begin < end) (void)madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#else
    (void)data;
    (void)bytes;
#endif
}

}  // namespace

void prepare_output(void* data, size_t bytes) {
    if (bytes >= kHugePageThreshold) advise_huge(data, bytes);
}

MemoryLimit::MemoryLimit(int64_t bytes) : limit_(bytes), left_(bytes), outer_(t_limit) { t_limit = this; }
MemoryLimit::~MemoryLimit() { t_limit = outer_; }

void MemoryLimit::take(size_t bytes) {
    if (bytes + kBeside > static_cast<size_t>(std::max<int64_t>(left_, 0)))
        throw Exceeded("more than " + std::to_string(limit_) + " bytes of memory");
    left_ -= static_cast<int64_t>(bytes + kBeside);
}

AlignedBytes::AlignedBytes(size_t size, bool zero) : size_(size) {
    if (t_limit != nullptr) t_limit->take(size);
    const size_t boundary = size >= kHuge ? kLargeBoundary : kLine;
    auto* memory = static_cast<uint8_t*>(::operator new(size, std::align_val_t(boundary)));
    memory_ = {memory, Release{boundary}};
    advise_huge(memory, size);
    if (zero) std::memset(memory, 0, size);
}

void AlignedBytes::Release::operator()(uint8_t* memory) const { ::operator delete(memory, std::align_val_t(boundary)); }

#if defined(_WIN32)

size_t page_bytes() {
    static const size_t size = [] {
        SYSTEM_INFO info;
        GetSystemInfo(&info);
        return static_cast<size_t>(info.dwPageSize);
    }();
    return size;
}

ZeroPages::ZeroPages(size_t size, bool) : size_(size) {
    memory_ = static_cast<uint8_t*>(VirtualAlloc(nullptr, size, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE));
    if (memory_ == nullptr) throw std::bad_alloc();
}

ZeroPages::~ZeroPages() {
    if (memory_ != nullptr) VirtualFree(memory_, 0, MEM_RELEASE);
}

void ZeroPages::clear() { std::memset(memory_, 0, size_); }

void ZeroPages::give_back(size_t offset, size_t bytes) {
    (void)VirtualAlloc(memory_ + offset, bytes, MEM_RESET, PAGE_READWRITE);
}

#elif defined(ZP_MAPS)

#if !defined(MAP_NORESERVE)
#define MAP_NORESERVE 0
#endif

size_t page_bytes() {
    static const size_t size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    return size;
}

ZeroPages::ZeroPages(size_t size, bool huge) : size_(size) {
    void* made = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (made == MAP_FAILED) throw std::bad_alloc();
    memory_ = static_cast<uint8_t*>(made);
    if (huge) advise_huge(memory_, size);
#if defined(__linux__)
    if (!huge) (void)madvise(memory_, size, MADV_NOHUGEPAGE);
#endif
}

ZeroPages::~ZeroPages() {
    if (memory_ != nullptr) munmap(memory_, size_);
}

void ZeroPages::clear() {
#if defined(__linux__)
    if (madvise(memory_, size_, MADV_DONTNEED) == 0) return;  // elsewhere the pages may keep what they have
#endif
    std::memset(memory_, 0, size_);
}

void ZeroPages::give_back(size_t offset, size_t bytes) { (void)madvise(memory_ + offset, bytes, MADV_DONTNEED); }

#else

size_t page_bytes() { return 4096; }

ZeroPages::ZeroPages(size_t size, bool) : memory_(static_cast<uint8_t*>(std::calloc(size, 1))), size_(size) {
    if (memory_ == nullptr) throw std::bad_alloc();
}

ZeroPages::~ZeroPages() { std::free(memory_); }

void ZeroPages::clear() { std::memset(memory_, 0, size_); }

void ZeroPages::give_back(size_t, size_t) {}

#endif

ZeroPages::ZeroPages(ZeroPages&& other) noexcept
    : memory_(std::exchange(other.memory_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

ZeroPages& ZeroPages::operator=(ZeroPages&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(size_, other.size_);
    return *this;
}

}  // namespace zeropoint
