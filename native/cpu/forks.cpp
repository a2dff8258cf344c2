#include "cpu/forks.h"

#include <atomic>

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#endif

namespace zeropoint {
namespace {

std::atomic<int> g_forks{0};

}  // namespace

#if defined(__unix__) || defined(__APPLE__)
void in_forked_children(void (*call)()) { pthread_atfork(nullptr, nullptr, call); }
#else
void in_forked_children(void (*)()) {}
#endif

int count_of_forks() {
    static const bool once = (in_forked_children([] { g_forks.fetch_add(1); }), true);
    (void)once;
    return g_forks.load(std::memory_order_relaxed);
}

}  // namespace zeropoint
