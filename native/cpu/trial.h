// Trying instructions that the CPU announces but may refuse.
#pragma once

#include <string>

namespace zeropoint {

// Runs `test` in a process of its own, so that no signal handler of this one is touched and no thread of it can be hit
// by what the test raises. Returns "" if it gave true; else what went wrong: a wrong answer, or the signal.
// `test` must do without memory, locks and I/O: the child has one thread of many.
std::string tried_in_child(bool (*test)());

}  // namespace zeropoint
