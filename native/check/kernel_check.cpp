// kernel_check [--quick]: every kernel against its reference, the selection, the thread pool and the operators.
// Needs nothing but the native core: no Python, no test framework. See native/README.md for how to run it.
#include "check/all_kernels.h"
#include "check/operators.h"
#include "check/processes.h"
#include "check/recurrent.h"
#include "check/report.h"
#include "check/selection.h"
#include "check/threads.h"

#include <cstdio>
#include <cstring>

int main(int argc, char** argv) {
    using namespace zeropoint;
    bool quick = false;
    for (int i = 1; i < argc; ++i) {
        if (std::strcmp(argv[i], "--quick") != 0) {
            std::fprintf(stderr, "usage: kernel_check [--quick]\n  --quick  fewer cases, for CPU emulators\n");
            return 2;
        }
        quick = true;
    }
    const CpuFeatures& cpu = cpu_features();
    std::printf("kernel_check on %s, best level %s\n", cpu.brand.c_str(), isa_name(best_isa(cpu)));
    check::Report report;
    check::check_selection(report);
    check::check_kernels(report, quick);
    check::check_threads(report, quick);
    check::check_trial(report);
    check::check_operators(report, quick);
    check::check_recurrent(report, quick);
    return report.close();
}
