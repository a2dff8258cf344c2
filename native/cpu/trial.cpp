#include "cpu/trial.h"

#if defined(__linux__)
#include <cerrno>
#include <csignal>
#include <cstring>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#endif

namespace zeropoint {

#if defined(__linux__)

namespace {

constexpr int kGood = 0, kWrong = 1;

[[noreturn]] void run_child(bool (*test)()) {
    for (const int signal : {SIGILL, SIGSEGV, SIGBUS, SIGFPE, SIGTRAP}) {
        struct sigaction action{};
        action.sa_handler = SIG_DFL;
        sigaction(signal, &action, nullptr);
    }
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    _exit(test() ? kGood : kWrong);
}

}  // namespace

std::string tried_in_child(bool (*test)()) {
    // Not fork(): that runs the handlers that libraries have registered, and ends with a SIGCHLD for the application.
    const long child = syscall(SYS_clone, 0, nullptr, nullptr, nullptr, nullptr);
    if (child == 0) run_child(test);
    if (child < 0) return std::string("no process can be made to try it (clone: ") + std::strerror(errno) + ")";
    int status = 0;
    while (waitpid(static_cast<pid_t>(child), &status, __WALL) < 0)
        if (errno != EINTR) return std::string("its trial cannot be waited for (") + std::strerror(errno) + ")";
    if (WIFSIGNALED(status)) {
        const int signal = WTERMSIG(status);
        const char* name = signal == SIGILL ? "SIGILL" : signal == SIGSEGV ? "SIGSEGV" : nullptr;
        return "it raised " + (name != nullptr ? std::string(name) : "signal " + std::to_string(signal));
    }
    return WEXITSTATUS(status) == kGood ? "" : "it gave a wrong answer";
}

#else

std::string tried_in_child(bool (*)()) { return "it cannot be tried on this operating system"; }

#endif

}  // namespace zeropoint
