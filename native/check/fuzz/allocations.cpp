#include "check/fuzz/allocations.h"

#include <malloc.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>

namespace zeropoint::check {
namespace {

std::atomic<int64_t> g_live{0}, g_peak{0}, g_largest{0};
std::atomic<int64_t> g_limit{std::numeric_limits<int64_t>::max()};
std::atomic<int> g_fill{0};
std::atomic<int64_t> g_requests{0}, g_fails{0};

void raise_to(std::atomic<int64_t>& mark, int64_t value) {
    int64_t seen = mark.load(std::memory_order_relaxed);
    while (seen < value && !mark.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
    }
}

void* allocate(size_t bytes, size_t boundary) {
    const int64_t wanted = bytes > size_t{1} << 62 ? int64_t{1} << 62 : static_cast<int64_t>(bytes);
    raise_to(g_largest, wanted);
    if (g_requests.fetch_add(1, std::memory_order_relaxed) + 1 == g_fails.load(std::memory_order_relaxed))
        throw std::bad_alloc();
    if (wanted > g_limit.load(std::memory_order_relaxed) - g_live.load(std::memory_order_relaxed))
        throw std::bad_alloc();
    void* memory = nullptr;
    if (boundary <= alignof(std::max_align_t))
        memory = std::malloc(bytes == 0 ? 1 : bytes);
    else if (posix_memalign(&memory, boundary, bytes == 0 ? 1 : bytes) != 0)
        memory = nullptr;
    if (memory == nullptr) throw std::bad_alloc();
    std::memset(memory, g_fill.load(std::memory_order_relaxed), bytes);
    const int64_t taken = static_cast<int64_t>(malloc_usable_size(memory));
    raise_to(g_peak, g_live.fetch_add(taken, std::memory_order_relaxed) + taken);
    return memory;
}

void release(void* memory) {
    if (memory == nullptr) return;
    g_live.fetch_sub(static_cast<int64_t>(malloc_usable_size(memory)), std::memory_order_relaxed);
    std::free(memory);
}

}  // namespace

Allocations allocations() { return {g_live.load(), g_peak.load(), g_largest.load()}; }

void reset_allocations() {
    g_peak = g_live.load();
    g_largest = 0;
}

void limit_allocations(int64_t bytes) { g_limit = bytes; }
void fail_request(int64_t number) {
    g_fails = number;
    g_requests = 0;
}

int64_t requests() { return g_requests.load(); }

void fill_allocations(uint8_t byte) { g_fill = byte; }

}  // namespace zeropoint::check

// Every form: where a sanitizer has its own, those that are missing here would not fit the others.
#define ZEROPOINT_COUNTED(NEW, DELETE)                                                                                 \
    void* NEW(size_t bytes) { return zeropoint::check::allocate(bytes, 1); }                                           \
    void* NEW(size_t bytes, std::align_val_t boundary) {                                                               \
        return zeropoint::check::allocate(bytes, static_cast<size_t>(boundary));                                       \
    }                                                                                                                  \
    void* NEW(size_t bytes, const std::nothrow_t&) noexcept {                                                          \
        try {                                                                                                          \
            return zeropoint::check::allocate(bytes, 1);                                                               \
        } catch (const std::bad_alloc&) {                                                                              \
            return nullptr;                                                                                            \
        }                                                                                                              \
    }                                                                                                                  \
    void DELETE(void* memory) noexcept { zeropoint::check::release(memory); }                                          \
    void DELETE(void* memory, size_t) noexcept { zeropoint::check::release(memory); }                                  \
    void DELETE(void* memory, std::align_val_t) noexcept { zeropoint::check::release(memory); }                        \
    void DELETE(void* memory, size_t, std::align_val_t) noexcept { zeropoint::check::release(memory); }                \
    void DELETE(void* memory, const std::nothrow_t&) noexcept { zeropoint::check::release(memory); }
ZEROPOINT_COUNTED(operator new, operator delete)
ZEROPOINT_COUNTED(operator new[], operator delete[])
