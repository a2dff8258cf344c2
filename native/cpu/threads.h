// The threads every kernel shares: one set in a process, so that nothing fights over cores. Our own pool, or torch's
// OpenMP threads once torch is there (adopt_openmp); never an OpenMP runtime that we bring along.
#pragma once

#include <cstdint>
#include <type_traits>

namespace zeropoint {

// Threads used by parallel_for, the caller included.
// Default: ZEROPOINT_NUM_THREADS, else OMP_NUM_THREADS, else the CPUs this process may run on.
int num_threads();
// Throws std::invalid_argument unless 1 <= n <= 1024.
void set_num_threads(int n);

// Run on the threads of the OpenMP runtime this process has already loaded (torch's), if there is one, instead of our
// own: after a parallel region libgomp's threads spin for milliseconds on the very cores zeropoint's would need, which
// halves the speed of whoever comes next. Returns whether one was found. A forked child falls back to a pool of its
// own.
bool adopt_openmp();

// Chunk body: fn(context, begin, end).
using ChunkFn = void (*)(const void* context, int64_t begin, int64_t end);

void parallel_for_erased(int64_t total, int64_t grain, ChunkFn fn, const void* context);

// Calls body(begin, end) on disjoint ranges covering [0, total). Every range but the last is a multiple of `grain`
// long, so at most total / grain threads take part and results never depend on how many there are. Runs inline when it
// does not pay, when the pool is busy with another caller, or when called from a pool thread. What `body` throws (it
// has no memory, say) reaches the caller once all threads have stopped; some ranges then were never begun.
template <class Body>
void parallel_for(int64_t total, int64_t grain, const Body& body) {
    static_assert(std::is_invocable_v<const Body&, int64_t, int64_t>);
    parallel_for_erased(
        total, grain,
        [](const void* context, int64_t begin, int64_t end) { (*static_cast<const Body*>(context))(begin, end); },
        &body);
}

}  // namespace zeropoint
