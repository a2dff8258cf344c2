// Instructions that are tried in a process of their own: what they raise is told, and touches nothing here.
#pragma once

#include "check/selection.h"
#include "cpu/trial.h"

#include <csignal>
#include <unistd.h>

namespace zeropoint::check {

inline void check_trial(Report& report) {
#if defined(__aarch64__)  // nothing is tried here; qemu makes no process of the kind
    const std::string works = tried_in_child([] { return true; });
    if (contains(works, "no process can be made"))
        return report.skip("cpu", "instructions are tried in a child", works);
#endif
    Check c("cpu", "instructions are tried in a child");
    static volatile std::sig_atomic_t handled = 0;
    const auto before = std::signal(SIGILL, [](int) { handled = 1; });
    c.expect(tried_in_child([] { return true; }).empty(), "what works was refused");
    c.expect(contains(tried_in_child([] { return false; }), "wrong answer"), "a wrong answer was not told");
    c.expect(contains(tried_in_child([] { return kill(getpid(), SIGILL) != 0; }), "SIGILL"), "SIGILL was not told");
    c.expect(contains(tried_in_child([] { return kill(getpid(), SIGSEGV) != 0; }), "SIGSEGV"), "SIGSEGV was not told");
    c.expect(handled == 0, "a handler of this process ran");
    std::signal(SIGILL, before);
    report.add(c);
}

}  // namespace zeropoint::check
