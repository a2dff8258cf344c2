// Steps one behind the other, each of the same parts, which several threads share. A step begins when all parts of the
// one before it are done.
//
// Each thread has a part that it prefers, whose memory is then in its cache. It takes others only where no thread has
// begun them, and waits only for parts that are in someone's hands: no number of threads can lock up. But where more
// threads want to run than there are cores, every step may wait for one that does not: after a few such waits one
// thread goes on alone.
#pragma once

#include "cpu/spin.h"
#include "cpu/threads.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

namespace zeropoint {

class StepThreads {
public:
    explicit StepThreads(int64_t parts) : parts_(static_cast<size_t>(parts)) {}

    int64_t parts() const { return static_cast<int64_t>(parts_.size()); }

    // take(step, part) for every part of the steps [first, end). If one throws (it has no memory, say) no thread waits
    // for its part; the others stop, and the caller gets what it threw.
    template <class Take>
    void run(int64_t first, int64_t end, const Take& take) {
        if (parts() == 1 || alone_.load(std::memory_order_relaxed)) {
            for (int64_t step = first; step < end; ++step)
                for (int64_t part = 0; part < parts(); ++part) take(step, part);
            return;
        }
        for (Part& part : parts_) {
            part.begun.store(first, std::memory_order_relaxed);
            part.done.store(first, std::memory_order_relaxed);
        }
        stopped_.store(false, std::memory_order_relaxed);
        std::atomic<int64_t> arrived{0};
        parallel_for(parts(), 1, [&](int64_t, int64_t) {
            share(first, end, arrived.fetch_add(1, std::memory_order_relaxed) % parts(), take);
        });
    }

private:
    using Clock = std::chrono::steady_clock;

    // In cache lines of their own. Only its thread looks at `begun`, unless it is late.
    struct Part {
        alignas(64) std::atomic<int64_t> begun{0};  // the first step of it that no thread has begun
        alignas(64) std::atomic<int64_t> done{0};   // the first that is not done
    };

    // What one thread does.
    template <class Take>
    void share(int64_t first, int64_t end, int64_t preferred, const Take& take) {
        constexpr int64_t kStepsPerMeasurement = 16;
        Clock::duration worked{};  // on a step
        bool late = false;         // whether it found a part that no thread had begun: the next step may have one, too
        for (int64_t step = first; step < end; ++step) {
            if (stopped_.load(std::memory_order_relaxed)) return;
            if (preferred != 0 && alone_.load(std::memory_order_relaxed)) return;
            const bool measured = (step - first) % kStepsPerMeasurement == 0;
            const Clock::time_point start = measured ? Clock::now() : Clock::time_point();
            take_if_free(step, preferred, take);
            if (late || alone_.load(std::memory_order_relaxed)) late = take_others(step, preferred, take);
            if (measured) worked = Clock::now() - start;
            late = wait_for(step, preferred, worked, take) || late;
        }
    }

    template <class Take>
    bool take_if_free(int64_t step, int64_t number, const Take& take) {
        Part& part = parts_[static_cast<size_t>(number)];
        int64_t expected = step;
        if (part.begun.load(std::memory_order_relaxed) != step ||
            !part.begun.compare_exchange_strong(expected, step + 1, std::memory_order_relaxed))
            return false;
        try {
            take(step, number);
        } catch (...) {
            stopped_.store(true, std::memory_order_relaxed);
            throw;
        }
        part.done.store(step + 1, std::memory_order_release);
        return true;
    }

    template <class Take>
    bool take_others(int64_t step, int64_t preferred, const Take& take) {
        bool any = false;
        for (int64_t i = 1; i < parts(); ++i) any = take_if_free(step, (preferred + i) % parts(), take) || any;
        return any;
    }

    bool is_done(int64_t step) const {
        for (const Part& part : parts_)
            if (part.done.load(std::memory_order_acquire) <= step) return false;
        return true;
    }

    // Until all parts of a step are done. Returns whether it had to take one. A wait is in vain if it is long, and
    // longer than the thread itself works on a step.
    template <class Take>
    bool wait_for(int64_t step, int64_t preferred, Clock::duration worked, const Take& take) {
        constexpr std::chrono::microseconds kLong(100);
        constexpr int kWaitsInVain = 4, kRoundsPerLook = 32;
        const Clock::duration patience = 2 * worked + kLong;
        Clock::time_point begun;
        bool counted = false, took = false;
        Spin spin;
        for (int round = 1; !is_done(step) && !stopped_.load(std::memory_order_relaxed); ++round) {
            spin.wait_or_yield();
            if (round % kRoundsPerLook != 0) continue;
            took = take_others(step, preferred, take) || took;
            const Clock::time_point now = Clock::now();
            if (round == kRoundsPerLook) begun = now;
            if (counted || now - begun < patience) continue;
            counted = true;
            if (waits_in_vain_.fetch_add(1, std::memory_order_relaxed) + 1 >= kWaitsInVain)
                alone_.store(true, std::memory_order_relaxed);
        }
        return took;
    }

    std::vector<Part> parts_;
    std::atomic<bool> alone_{false}, stopped_{false};
    std::atomic<int> waits_in_vain_{0};
};

}  // namespace zeropoint
