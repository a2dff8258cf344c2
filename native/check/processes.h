// Checks that make processes, and so are other files where those are made in another way.
#pragma once

#include "check/report.h"

namespace zeropoint::check {

// The thread pool in a child that is forked, while it is idle and while it is busy.
void check_fork(Report& report);
// Instructions that are tried in a process of their own: what they raise is told, and touches nothing here.
void check_trial(Report& report);

}  // namespace zeropoint::check
