#include "check/processes.h"

#include "check/threads.h"
#include "cpu/trial.h"

#include <csignal>
#include <sys/wait.h>
#include <unistd.h>

namespace zeropoint::check {
namespace {

// Runs body in a forked child, which has 20 seconds to return true.
template <class Body>
bool in_child(const Body& body) {
    std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        alarm(20);
        _exit(body() ? 0 : 1);
    }
    int status = 0;
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

void check_fork(Report& report) {
    Check c("threads", "after fork()");
    set_num_threads(3);
    c.expect(covers_once(1000, 1), "before fork");  // the pool now has threads, which a child will not have
    c.expect(in_child([] { return covers_once(1000, 1); }), "in the child");
    c.expect(in_child([] {
                 set_num_threads(2);
                 return covers_once(1000, 1) && in_child([] { return covers_once(1000, 1); });
             }),
             "in the child of a child, with another size");
    c.expect(covers_once(1000, 1), "in the parent");

    // Forked while another thread's job is in flight: the child must not wait for it.
    std::atomic<bool> stop{false};
    std::thread busy([&] {
        while (!stop) covers_once(1000, 1);
    });
    for (int i = 0; i < 5; ++i) c.expect(in_child([] { return covers_once(1000, 1); }), "while the pool is busy");
    stop = true;
    busy.join();
    report.add(c);
}

void check_trial(Report& report) {
    // Nothing is tried on ARM, whose emulators make no process of the kind.
    const std::string works = tried_in_child([] { return true; });
    if (cpu_features().architecture == "aarch64" && !works.empty())
        return report.skip("cpu", "instructions are tried in a child", works);
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
