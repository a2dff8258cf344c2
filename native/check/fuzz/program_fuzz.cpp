// program_fuzz: wrong program files by the million. See docs/reliability.md.
//
//   program_fuzz fuzz FOLDER [--count N] [--seed N] [--seconds N] [--keep FOLDER]   files made from those of FOLDER
//   program_fuzz replay FILE...                                                     these files, as they are
//   program_fuzz threads FILE...                                                    programs that threads share
//   program_fuzz starve [--most N] FILE...                                          requests for memory refused
//   once
//
// Files are made and tried in a child process, which is replaced when it dies or hangs; the file is then kept.
#include "check/fuzz/mutate.h"
#include "check/fuzz/starve.h"
#include "check/fuzz/trial.h"
#include "cpu/isa.h"
#include "cpu/threads.h"
#include "engine/program.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <new>
#include <sstream>
#include <thread>

namespace zeropoint::check {
namespace {

constexpr double kHangs = 20;  // seconds; machines that run this are busy, and sanitizers are slow
constexpr size_t kStages = 5;
constexpr const char* kStageNames[kStages] = {"refused: container", "refused: program", "loaded, no plan",
                                              "planned, too large to run", "ran"};

std::string read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

// What parent and child share.
struct Shared {
    std::atomic<uint64_t> next{0};  // the file that is tried, or will be
    std::atomic<int64_t> began{0};  // when, in nanoseconds
    std::atomic<int> stage{0};
    std::atomic<int64_t> reached[kStages] = {};
    std::atomic<int64_t> load_nanoseconds{0}, run_nanoseconds{0}, largest{0}, load_peak{0}, run_peak{0};
    std::atomic<int64_t> load_share{0};  // peak of loading over the bytes of the file
    std::atomic<int64_t> bytes{0};
    std::atomic<bool> failed{false};
    char wrong[512] = "";
};

int64_t nanoseconds() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

Shared* g_shared = nullptr;

void on_stage(int stage) {
    if (g_shared != nullptr) g_shared->stage.store(stage, std::memory_order_relaxed);
}

void raise_to(std::atomic<int64_t>& mark, int64_t value) {
    if (mark.load(std::memory_order_relaxed) < value) mark.store(value, std::memory_order_relaxed);
}

struct Options {
    uint64_t count = 20000, seed = 1;
    double seconds = 1e9;
    std::string folder, keep;
    std::vector<std::string> files;
};

// In the child: never returns.
[[noreturn]] void try_files(const Mutator& mutator, const Options& options, Shared& shared) {
    const Bounds bounds;
    limit_allocations(int64_t{1} << 30);
    for (; shared.next < options.count; ++shared.next) {
        const uint64_t number = shared.next;
        shared.stage = 0;
        shared.began = 0;
        const std::string file = mutator.make(options.seed, number);
        shared.began = nanoseconds();
        const Trial trial = try_file(file, number, bounds, on_stage);
        ++shared.reached[static_cast<size_t>(trial.stage)];
        shared.bytes += static_cast<int64_t>(file.size());
        raise_to(shared.load_nanoseconds, static_cast<int64_t>(trial.load_seconds * 1e9));
        raise_to(shared.run_nanoseconds, static_cast<int64_t>(trial.run_seconds * 1e9));
        raise_to(shared.largest, trial.largest);
        raise_to(shared.load_peak, trial.load_peak);
        raise_to(shared.run_peak, trial.run_peak);
        raise_to(shared.load_share, trial.load_peak / std::max<int64_t>(1, static_cast<int64_t>(file.size())));
        if (trial.wrong.empty()) continue;
        std::strncpy(shared.wrong, trial.wrong.c_str(), sizeof shared.wrong - 1);
        shared.failed = true;
        _exit(3);
    }
    _exit(0);
}

class Fuzz {
public:
    explicit Fuzz(const Options& options) : options_(options), mutator_(files_of(options.folder)) {
        void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) throw std::runtime_error("no shared memory");
        g_shared = shared_ = new (memory) Shared;
    }

    int run() {
        const int64_t begin = nanoseconds();
        const auto elapsed = [&] { return static_cast<double>(nanoseconds() - begin) * 1e-9; };
        bool in_time = true;
        while (shared_->next < options_.count && in_time) {
            const pid_t child = fork();
            if (child == 0) try_files(mutator_, options_, *shared_);
            in_time = watch(child, elapsed);
        }
        report(elapsed());
        return failures_ == 0 ? 0 : 1;
    }

private:
    static std::vector<std::string> files_of(const std::string& folder) {
        std::vector<std::string> paths, files;
        for (const auto& entry : std::filesystem::directory_iterator(folder))
            if (entry.path().extension() == ".zpt") paths.push_back(entry.path().string());
        std::sort(paths.begin(), paths.end());
        for (const std::string& path : paths) files.push_back(read_file(path));
        if (files.empty()) throw std::runtime_error("there are no .zpt files in " + folder);
        return files;
    }

    // Until the child ends. False when time is up.
    template <class Elapsed>
    bool watch(pid_t child, const Elapsed& elapsed) {
        for (;;) {
            int status = 0;
            if (waitpid(child, &status, WNOHANG) == child) {
                if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
                const std::string how = WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status))
                                                            : "exit " + std::to_string(WEXITSTATUS(status));
                fail(shared_->failed ? shared_->wrong : "the process died, " + how);
                return true;
            }
            const int64_t began = shared_->began;
            const bool hangs = began > 0 && static_cast<double>(nanoseconds() - began) * 1e-9 > kHangs;
            const bool late = elapsed() > options_.seconds;
            if (hangs || late) {
                kill(child, SIGKILL);
                waitpid(child, &status, 0);
                // How long a run takes is what the program asks for; loading and planning must be quick.
                if (hangs && shared_->stage == static_cast<int>(Stage::ran)) {
                    ++long_runs_;
                    ++shared_->next;
                    shared_->began = 0;
                } else if (hangs) {
                    fail("loading or planning takes more than " + std::to_string(static_cast<int>(kHangs)) + " s");
                }
                return !late;
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
        }
    }

    void fail(const std::string& what) {
        ++failures_;
        const uint64_t number = shared_->next++;
        std::printf("WRONG file %llu at stage %d: %s\n", static_cast<unsigned long long>(number), shared_->stage.load(),
                    what.c_str());
        std::fflush(stdout);
        shared_->failed = false;
        shared_->began = 0;
        if (options_.keep.empty()) return;
        std::filesystem::create_directories(options_.keep);
        const std::string path =
            options_.keep + "/" + std::to_string(options_.seed) + "-" + std::to_string(number) + ".zpt";
        std::ofstream(path, std::ios::binary) << mutator_.make(options_.seed, number);
    }

    void report(double seconds) const {
        const double files = static_cast<double>(shared_->next.load());
        std::printf("%.0f files in %.1f s, %.0f a second, %.0f bytes each on average\n", files, seconds,
                    files / seconds, static_cast<double>(shared_->bytes.load()) / std::max(1.0, files));
        for (size_t i = 0; i < kStages; ++i)
            std::printf("  %-26s %9lld\n", kStageNames[i], static_cast<long long>(shared_->reached[i].load()));
        std::printf("  longest load or plan %.1f ms, longest run %.1f ms, runs given up %lld\n",
                    static_cast<double>(shared_->load_nanoseconds) * 1e-6,
                    static_cast<double>(shared_->run_nanoseconds) * 1e-6, static_cast<long long>(long_runs_));
        std::printf("  most memory: load %lld bytes (%lld for each byte of the file), run %lld; largest request %lld\n",
                    static_cast<long long>(shared_->load_peak.load()),
                    static_cast<long long>(shared_->load_share.load()),
                    static_cast<long long>(shared_->run_peak.load()), static_cast<long long>(shared_->largest.load()));
        std::printf("%lld wrong\n", static_cast<long long>(failures_));
    }

    const Options options_;
    const Mutator mutator_;
    Shared* shared_ = nullptr;
    int64_t failures_ = 0, long_runs_ = 0;
};

int replay(const Options& options) {
    int failures = 0;
    limit_allocations(int64_t{1} << 30);
    std::map<std::string, int> stages;
    for (const std::string& path : options.files) {
        const Trial trial = try_file(read_file(path), options.seed, {}, on_stage);
        ++stages[kStageNames[static_cast<size_t>(trial.stage)]];
        if (trial.wrong.empty()) continue;
        ++failures;
        std::printf("WRONG %s: %s\n", path.c_str(), trial.wrong.c_str());
    }
    for (const auto& [stage, count] : stages) std::printf("  %-26s %9d\n", stage.c_str(), count);
    std::printf("%d wrong\n", failures);
    return failures == 0 ? 0 : 1;
}

// Every program run by eight threads at once, with plans that come and go, while one more thread loads it, runs it and
// lets go of it; all must give what one thread gives.
int run_threads(const Options& options) {
    constexpr int kThreads = 8, kRuns = 20, kLoads = 10, kFirst = 3, kBatches = 20;  // more than plans are kept
    std::atomic<int> wrong{0};
    for (const std::string& path : options.files) {
        Program shared(Container::read(path, tensors_in_place));
        const auto once = [](Program& program, int64_t batch) {
            std::vector<InputLayout> layouts;
            std::vector<std::vector<uint8_t>> inputs, outputs;
            std::vector<const void*> from;
            std::vector<void*> to;
            for (const ProgramInput& input : program.inputs()) {
                layouts.push_back({input.example, false});
                if (!input.sizes.empty() && input.sizes[0] < 0) layouts.back().sizes[0] = batch;
                const int64_t bytes = count_of(layouts.back().sizes) * bytes_of(input.type);
                const bool indices = bytes_of(input.type) > 1 && input.type != ElementType::f32;
                const uint8_t fill = input.type == ElementType::f32 ? 0x3D : indices ? 0 : 1;
                inputs.emplace_back(static_cast<size_t>(bytes), fill);
            }
            const auto plan = program.plan(layouts);
            for (const Tensor& y : plan->outputs) outputs.emplace_back(static_cast<size_t>(y.bytes()));
            for (const auto& bytes : inputs) from.push_back(bytes.data());
            for (auto& bytes : outputs) to.push_back(bytes.data());
            State state(program.state());
            program.run(*plan, from.data(), to.data(), state);
            return outputs;
        };
        // Some programs have no result for a batch of one or two.
        std::vector<std::vector<std::vector<uint8_t>>> expected;
        for (int64_t batch = kFirst; batch < kFirst + kBatches; ++batch) expected.push_back(once(shared, batch));
        std::vector<std::thread> threads;
        for (int t = 0; t < kThreads; ++t)
            threads.emplace_back([&, t] {
                for (int i = 0; i < kRuns; ++i) {
                    const size_t which = static_cast<size_t>(t * 7 + i) % expected.size();
                    if (once(shared, static_cast<int64_t>(which) + kFirst) != expected[which]) ++wrong;
                }
            });
        threads.emplace_back([&] {
            for (size_t i = 0; i < kLoads; ++i) {
                Program own(Container::read(path, tensors_in_place));
                if (once(own, static_cast<int64_t>(i) + kFirst) != expected[i]) ++wrong;
            }
        });
        for (std::thread& thread : threads) thread.join();
    }
    std::printf("%zu programs, %d threads\n%d wrong\n", options.files.size(), kThreads, wrong.load());
    return wrong == 0 ? 0 : 1;
}

int usage() {
    std::fprintf(stderr, "usage: program_fuzz fuzz FOLDER [--count N] [--seed N] [--seconds N] [--keep FOLDER]\n"
                         "       program_fuzz replay FILE...\n"
                         "       program_fuzz threads FILE...\n"
                         "       program_fuzz starve [--most N] FILE...\n");
    return 2;
}

int run(const std::vector<std::string>& words) {
    if (words.size() < 2) return usage();
    Options options;
    options.files.assign(words.begin() + 1, words.end());
    if (words[0] == "replay") {
        set_num_threads(1);
        return replay(options);
    }
    if (words[0] == "threads") return run_threads(options);
    if (words[0] == "starve") {
        int64_t most = std::numeric_limits<int64_t>::max();
        if (words[1] == "--most") {
            if (words.size() < 4 || (most = std::stoll(words[2])) < 1) return usage();
            options.files.erase(options.files.begin(), options.files.begin() + 2);
        }
        return check_starved(options.files, most) == 0 ? 0 : 1;
    }
    if (words[0] != "fuzz" || words.size() % 2 != 0) return usage();
    options.folder = words[1];
    for (size_t i = 2; i + 1 < words.size(); i += 2) {
        const std::string& value = words[i + 1];
        if (words[i] == "--count")
            options.count = std::stoull(value);
        else if (words[i] == "--seed")
            options.seed = std::stoull(value);
        else if (words[i] == "--seconds")
            options.seconds = std::stod(value);
        else if (words[i] == "--keep")
            options.keep = value;
        else
            return usage();
    }
    set_num_threads(1);
    return Fuzz(options).run();
}

}  // namespace
}  // namespace zeropoint::check

int main(int argc, char** argv) {
    try {
        return zeropoint::check::run({argv + 1, argv + argc});
    } catch (const std::exception& error) {
        std::fprintf(stderr, "program_fuzz: %s\n", error.what());
        return 2;
    }
}
