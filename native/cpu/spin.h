// Waiting for another thread without giving the core away, for a time: `pause` takes 10 times as long on one CPU as on
// another, so rounds of it say nothing.
#pragma once

#include "cpu/machine.h"

#include <chrono>
#include <thread>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace zeropoint {

class Spin {
public:
    // One short wait. Returns false once kSpinSeconds have passed since the first look at the clock.
    bool wait() {
#if defined(__x86_64__)
        _mm_pause();
#elif defined(__aarch64__)
        __asm__ volatile("isb");  // `yield` is no wait on CPUs without hyperthreads
#else
        std::this_thread::yield();
#endif
        constexpr unsigned kRoundsPerLook = 16;  // at the clock, which takes about as long as one
        if (++round_ % kRoundsPerLook != 0) return !over_;
        const Clock::time_point now = Clock::now();
        if (round_ == kRoundsPerLook) begun_ = now;
        over_ = std::chrono::duration<double>(now - begun_).count() >= kSpinSeconds;
        return !over_;
    }
    // One short wait, for as long as it takes: the core is given away once the time has passed.
    void wait_or_yield() {
        if (!wait()) std::this_thread::yield();
    }

private:
    using Clock = std::chrono::steady_clock;
    unsigned round_ = 0;
    bool over_ = false;
    Clock::time_point begun_;
};

}  // namespace zeropoint
