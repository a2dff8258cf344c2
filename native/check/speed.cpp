// kernel_speed [level]: GMAC/s of linear layers and convolutions, on one and on two threads.
#include "check/inputs.h"
#include "cpu/isa.h"
#include "cpu/threads.h"
#include "operators/linear.h"

#include <chrono>
#include <cstdio>

namespace zeropoint::check {
namespace {

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// The best of some runs, which is what the neighbours on this machine disturb least.
template <class Body>
double best_time(const Body& body) {
    body();
    double best = 1e30;
    for (const double stop = seconds() + 0.25; seconds() < stop;) {
        const double begin = seconds();
        body();
        best = std::min(best, seconds() - begin);
    }
    return best;
}

template <class T>
std::vector<T> random_bytes(Random& random, int64_t n) {
    std::vector<T> r(static_cast<size_t>(n));
    for (T& x : r) x = static_cast<T>(random.bits());
    return r;
}

template <class Body>
void show(const char* what, double macs, const Body& body) {
    std::printf("%-34s", what);
    for (int threads : {1, 2}) {
        set_num_threads(threads);
        const double time = best_time(body);
        std::printf("  %d: %8.1f GMAC/s %9.1f us", threads, macs / time * 1e-9, time * 1e6);
    }
    std::printf("\n");
}

void linear(int64_t rows, int64_t outputs, int64_t inputs) {
    Random random(1);
    const auto x = random_bytes<uint8_t>(random, rows * inputs);
    const auto w = random_bytes<int8_t>(random, outputs * inputs);
    std::vector<uint8_t> y(static_cast<size_t>(rows * outputs));
    const LinearPlan plan({w.data(), IntType::s8, nullptr, 0}, outputs, inputs);
    const float multiplier = 1e-4f;
    MatmulOutput out;
    out.y = y.data();
    out.multiplier = &multiplier;
    out.zero_point = 128;
    char what[64];
    std::snprintf(what, sizeof what, "linear %lldx%lld M=%lld", static_cast<long long>(outputs),
                  static_cast<long long>(inputs), static_cast<long long>(rows));
    show(what, static_cast<double>(rows * outputs * inputs), [&] { plan.run({x.data(), IntType::u8, 3}, rows, out); });
}

}  // namespace
}  // namespace zeropoint::check

int main(int argc, char** argv) {
    using namespace zeropoint;
    if (argc > 1) set_active_isa(isa_from_name(argv[1]));
    std::printf("level %s\n", isa_name(active_isa()));
    for (int64_t rows : {1, 2, 4, 8, 16, 32, 128, 1024}) check::linear(rows, 1024, 1024);
    check::linear(64, 4096, 4096);
    return 0;
}
