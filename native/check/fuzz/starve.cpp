#include "check/fuzz/starve.h"

#include "check/fuzz/allocations.h"
#include "check/fuzz/arrays.h"
#include "cpu/isa.h"
#include "cpu/threads.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <new>
#include <thread>

namespace zeropoint::check {
namespace {

constexpr unsigned kHangs = 120;  // seconds for one request

using Results = std::vector<std::vector<Bytes>>;

struct Inputs {
    std::vector<InputLayout> layouts;
    Arrays arrays;
};

Inputs inputs_of(const Program& program, int64_t batch, bool example) {
    Random random(1, 5);
    std::vector<InputLayout> layouts;
    for (const ProgramInput& input : program.inputs()) {
        layouts.push_back({input.example, false});
        if (!example && !input.sizes.empty() && input.sizes[0] < 0) layouts.back().sizes[0] = batch;
    }
    Arrays arrays(program, layouts, random, false);
    return {std::move(layouts), std::move(arrays)};
}

// All that is done with a program.
Results use(Program& program, const std::vector<Inputs>& inputs) {
    Results results;
    const Isa best = best_isa(cpu_features());
    for (const Isa isa : {best, Isa::portable}) {
        set_active_isa(isa);
        for (const int threads : {1, 2, 3}) {  // the pool is made anew
            set_num_threads(threads);
            for (const Inputs& x : inputs) {
                const auto plan = program.plan(x.layouts);
                results.push_back(outputs_of(program, *plan, x.arrays, 0x11));
            }
        }
    }
    program.data();
    set_active_isa(best);
    return results;
}

// What the caller keeps for its next call depends on which part of the work the others left to it: here it has none.
template <class Body>
void on_own_thread(const Body& body) {
    std::thread(body).join();
}

// Nor do threads of a pool that is not used, so that what lives is the same every time.
int64_t live_bytes() {
    set_num_threads(4);
    parallel_for(4, 1, [](int64_t, int64_t) {});
    return allocations().live;
}

class Starved {
public:
    explicit Starved(const std::string& path) : path_(path) {
        Program program(Container::read(path, tensors_in_place));
        inputs_.push_back(inputs_of(program, 0, true));
        inputs_.push_back(inputs_of(program, 5, false));  // some programs have no result for a batch of one or two
        want_ = use(program, inputs_);
    }

    // Whether nothing is wrong.
    bool run(int64_t most) {
        on_own_thread([&] { attempt(0); });  // what is made once is there from now on
        const int64_t live = live_bytes();
        int64_t all = 0;
        on_own_thread([&] {
            attempt(0);
            all = requests();
        });
        if (live_bytes() != live) complain(0, "memory is lost even if no request fails");
        const int64_t tried = std::min(all, most);
        for (int64_t i = 0; i < tried && right_; ++i) {
            const int64_t number = 1 + i * all / tried;
            alarm(kHangs);
            on_own_thread([&] { attempt(number); });
            alarm(0);
            if (const int64_t lost = live_bytes() - live; lost != 0)
                complain(number, std::to_string(lost) + " bytes are lost");
        }
        std::printf("%-5s %s, %lld of %lld requests, %lld refused with std::bad_alloc\n", right_ ? "ok" : "WRONG",
                    path_.c_str(), static_cast<long long>(tried), static_cast<long long>(all),
                    static_cast<long long>(refused_));
        std::fflush(stdout);
        return right_;
    }

private:
    void attempt(int64_t number) {
        std::unique_ptr<Program> program;
        fail_request(number);
        try {
            program = std::make_unique<Program>(Container::read(path_, tensors_in_place));
            const Results got = use(*program, inputs_);
            if (number == 0) return;
            fail_request(0);
            if (got != want_) complain(number, "other results");  // of requests that may fail: it went on without
        } catch (const std::bad_alloc&) {
            ++refused_;
        } catch (const std::exception& error) {
            complain(number, std::string("another error: ") + error.what());
        }
        if (number == 0) return;
        fail_request(0);
        if (!program) program = std::make_unique<Program>(Container::read(path_, tensors_in_place));
        if (use(*program, inputs_) != want_) complain(number, "other results afterwards");
    }

    void complain(int64_t number, const std::string& what) {
        right_ = false;
        std::printf("%s, request %lld: %s\n", path_.c_str(), static_cast<long long>(number), what.c_str());
    }

    const std::string path_;
    std::vector<Inputs> inputs_;
    Results want_;
    bool right_ = true;
    int64_t refused_ = 0;
};

}  // namespace

int check_starved(const std::vector<std::string>& paths, int64_t most) {
    int wrong = 0;
    for (const std::string& path : paths) wrong += Starved(path).run(most) ? 0 : 1;
    std::printf("%zu programs\n%d wrong\n", paths.size(), wrong);
    return wrong;
}

}  // namespace zeropoint::check
