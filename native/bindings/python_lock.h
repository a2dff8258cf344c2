// Python's lock, given back while native code runs, and taken by native code that calls Python.
//
// A thread that asks for the lock while the interpreter ends is ended by Python before 3.14: its stack is unwound
// through functions that must not throw, which ends the process with SIGABRT. Such a thread stays here instead, as
// Python 3.14 lets it, until the process is gone.
#pragma once

#include <nanobind/nanobind.h>

#include <cxxabi.h>
#include <unistd.h>

namespace zeropoint {

template <class Take>
auto take_python_lock(const Take& take) noexcept {
    try {
        return take();
    } catch (abi::__forced_unwind&) {
        for (;;) pause();
    }
}

class Unlocked {
public:
    Unlocked() noexcept : state_(PyEval_SaveThread()) {}
    ~Unlocked() {
        take_python_lock([this] { PyEval_RestoreThread(state_); });
    }
    Unlocked(const Unlocked&) = delete;
    Unlocked& operator=(const Unlocked&) = delete;

private:
    PyThreadState* state_;
};

class Locked {
public:
    Locked() noexcept : state_(take_python_lock([] { return PyGILState_Ensure(); })) {}
    ~Locked() { PyGILState_Release(state_); }
    Locked(const Locked&) = delete;
    Locked& operator=(const Locked&) = delete;

private:
    PyGILState_STATE state_;
};

}  // namespace zeropoint
