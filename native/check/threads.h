// The thread pool: every index once, nothing nested in it, many callers, changes of size, and fork().
#pragma once

#include "check/processes.h"
#include "check/selection.h"
#include "cpu/threads.h"

#include <atomic>
#include <thread>

namespace zeropoint::check {

// Whether parallel_for(total, grain) visits every index once, in ranges cut at multiples of grain.
inline bool covers_once(int64_t total, int64_t grain) {
    std::vector<std::atomic<uint8_t>> visits(static_cast<size_t>(total));
    std::atomic<bool> well_cut{true};
    parallel_for(total, grain, [&](int64_t begin, int64_t end) {
        if (begin % grain != 0 || (end % grain != 0 && end != total) || begin >= end) well_cut = false;
        for (int64_t i = begin; i < end; ++i) visits[static_cast<size_t>(i)].fetch_add(1, std::memory_order_relaxed);
    });
    return well_cut && std::all_of(visits.begin(), visits.end(), [](const auto& v) { return v == 1; });
}

inline void check_coverage(Report& report, bool quick) {
    Check c("threads", "every index once");
    for (int threads : {1, 2, 3, 5}) {
        set_num_threads(threads);
        c.expect(num_threads() == threads, "num_threads() is not what was set");
        for (int64_t total : {0, 1, 7, 64, 1000, quick ? 2000 : 100003})
            for (int64_t grain : {1, 3, 64, 5000})
                c.expect(covers_once(total, grain), [&] {
                    return std::to_string(total) + " by " + std::to_string(grain) + " on " + std::to_string(threads) +
                           " threads";
                });
    }
    for (int bad : {0, -1, 1025}) {
        const std::string text = refusal([&] { set_num_threads(bad); });
        c.expect(contains(text, std::to_string(bad)) && contains(text, "1024"),
                 "a bad count must be named, with the limits");
        c.expect(num_threads() == 5, "a refused count must change nothing");
    }
    report.add(c);
}

inline void check_nested(Report& report) {
    Check c("threads", "nested calls run inline");
    set_num_threads(3);
    std::atomic<int> wrong{0};
    std::atomic<int64_t> visited{0};
    parallel_for(64, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            const std::thread::id outer = std::this_thread::get_id();
            int calls = 0;
            parallel_for(100, 1, [&](int64_t from, int64_t to) {
                ++calls;
                visited += to - from;
                if (from != 0 || to != 100 || std::this_thread::get_id() != outer) ++wrong;
            });
            if (calls != 1) ++wrong;
        }
    });
    c.expect(wrong == 0, "a nested call left its thread");
    c.expect(visited == 6400, "a nested call lost work");
    report.add(c);
}

inline void check_throwing(Report& report) {
    Check c("threads", "what a body throws reaches the caller");
    for (int threads : {1, 3})
        for (int64_t at : {0, 7, 63}) {
            set_num_threads(threads);
            const std::string text = refusal([&] {
                parallel_for(64, 1, [&](int64_t begin, int64_t end) {
                    if (begin <= at && at < end) throw std::invalid_argument("no memory for " + std::to_string(at));
                });
            });
            c.expect(contains(text, "no memory for " + std::to_string(at)), "the exception was lost");
            c.expect(covers_once(64, 1), "the pool is unusable after an exception");
        }
    set_num_threads(3);
    const std::string text =
        refusal([&] { parallel_for(64, 1, [](int64_t, int64_t) { throw std::invalid_argument("all of them"); }); });
    c.expect(contains(text, "all of them") && covers_once(1000, 1), "exceptions of several threads");
    report.add(c);
}

inline void check_callers(Report& report, bool quick) {
    Check c("threads", "concurrent callers");
    std::atomic<int> wrong{0};
    const int rounds = quick ? 20 : 300;
    std::vector<std::thread> callers;
    for (int k = 0; k < 3; ++k)
        callers.emplace_back([&, k] {
            for (int i = 0; i < rounds; ++i) {
                if (k == 2) set_num_threads(1 + i % 4);  // one of them also changes the size all the time
                if (!covers_once(200 + i, 7)) ++wrong;
            }
        });
    for (std::thread& t : callers) t.join();
    for (int i = 0; i < rounds; ++i) c.expect(wrong == 0, "an index was lost or visited twice");
    report.add(c);
}

inline void check_threads(Report& report, bool quick) {
    const int before = num_threads();
    check_coverage(report, quick);
    check_nested(report);
    check_throwing(report);
    check_callers(report, quick);
    check_fork(report);
    set_num_threads(before);
}

}  // namespace zeropoint::check
