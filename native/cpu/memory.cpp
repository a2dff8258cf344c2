#include "cpu/memory.h"

#include <cstring>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace zeropoint {
namespace {

constexpr size_t kLine = 64, kHuge = size_t{2} << 20;

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

AlignedBytes::AlignedBytes(size_t size, bool zero) : size_(size) {
    const size_t boundary = size >= kHuge ? kHuge : kLine;
    auto* memory = static_cast<uint8_t*>(::operator new(size, std::align_val_t(boundary)));
    memory_ = {memory, Release{boundary}};
    advise_huge(memory, size);
    if (zero) std::memset(memory, 0, size);
}

void AlignedBytes::Release::operator()(uint8_t* memory) const { ::operator delete(memory, std::align_val_t(boundary)); }

}  // namespace zeropoint
