#include "check/processes.h"

namespace zeropoint::check {

void check_fork(Report& report) { report.skip("threads", "after fork()", "this system has none"); }

void check_trial(Report& report) {
    report.skip("cpu", "instructions are tried in a child", "this system makes processes in another way");
}

}  // namespace zeropoint::check
