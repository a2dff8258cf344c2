// Python's lock, given back while native code runs, and taken by native code that calls Python.
//
// A thread that asks for the lock while the interpreter ends is ended by Python before 3.14. It is held instead
// (cpu/unwinding.h), as Python 3.14 holds it.
#pragma once

#include "cpu/unwinding.h"

#include <nanobind/nanobind.h>

namespace zeropoint {

class Unlocked {
public:
    Unlocked() noexcept : state_(PyEval_SaveThread()) {}
    ~Unlocked() {
        held_while_ended([this] { PyEval_RestoreThread(state_); });
    }
    Unlocked(const Unlocked&) = delete;
    Unlocked& operator=(const Unlocked&) = delete;

private:
    PyThreadState* state_;
};

class Locked {
public:
    Locked() noexcept : state_(held_while_ended([] { return PyGILState_Ensure(); })) {}
    ~Locked() { PyGILState_Release(state_); }
    Locked(const Locked&) = delete;
    Locked& operator=(const Locked&) = delete;

private:
    PyGILState_STATE state_;
};

}  // namespace zeropoint
