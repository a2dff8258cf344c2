#include "cpu/memory.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <string>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace zeropoint {
namespace {

constexpr size_t kLine = 64, kHuge = size_t{2} << 20;
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
    const size_t boundary = size >= kHuge ? kHuge : kLine;
    auto* memory = static_cast<uint8_t*>(::operator new(size, std::align_val_t(boundary)));
    memory_ = {memory, Release{boundary}};
    advise_huge(memory, size);
    if (zero) std::memset(memory, 0, size);
}

void AlignedBytes::Release::operator()(uint8_t* memory) const { ::operator delete(memory, std::align_val_t(boundary)); }

}  // namespace zeropoint
