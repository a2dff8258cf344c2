// glibc ends a thread (pthread_exit) by unwinding its stack, through functions that must not throw, which ends the
// process with SIGABRT. Other systems do not unwind.
#pragma once

#include <cstdlib>  // says whether this is glibc

#if defined(__GLIBC__)
#include <cxxabi.h>
#include <unistd.h>
#endif

namespace zeropoint {

// What `call` returns. A thread that is ended in it stays here instead, until the process is gone.
template <class Call>
auto held_while_ended(const Call& call) noexcept {
#if defined(__GLIBC__)
    try {
        return call();
    } catch (abi::__forced_unwind&) {
        for (;;) pause();
    }
#else
    return call();
#endif
}

}  // namespace zeropoint
