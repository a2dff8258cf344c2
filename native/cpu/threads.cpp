#include "cpu/threads.h"

#include "cpu/forks.h"
#include "cpu/machine.h"
#include "cpu/spin.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <dlfcn.h>
#include <link.h>
#include <cstring>
#endif

namespace zeropoint {
namespace {

constexpr int kMaxThreads = 1024;
// More chunks than threads, so that a core the neighbours steal delays only a part of the work.
constexpr int kChunksPerThread = 4;

thread_local bool t_inside_pool = false;

int positive_env(const char* name) {
    const char* text = std::getenv(name);
    if (text == nullptr) return 0;
    char* end = nullptr;
    const long value = std::strtol(text, &end, 10);
    return (end == text || value < 1 || value > kMaxThreads) ? 0 : static_cast<int>(value);
}

int default_threads() {
    for (const char* name : {"ZEROPOINT_NUM_THREADS", "OMP_NUM_THREADS"})
        if (const int n = positive_env(name)) return n;
    return machine().useful_threads();
}

std::atomic<int>& thread_count() {
    static std::atomic<int> count{default_threads()};
    return count;
}

// The work of one parallel_for: a part for each thread, in the order of the threads, in chunks. Steps of a network that
// follow each other are cut alike, so that a thread finds in its cache what it has made. Who has done his own part
// takes chunks of the others.
class Job {
public:
    Job(int64_t total, int64_t chunk, int threads, ChunkFn fn, const void* context)
        : total_(total),
          chunk_(chunk),
          parts_(std::min(threads, kMostParts)),
          fn_(fn),
          context_(context) {
        const int64_t chunks = (total + chunk - 1) / chunk;
        for (int i = 0; i < parts_; ++i) {
            part_[i].next.store(chunks * i / parts_ * chunk, std::memory_order_relaxed);
            part_[i].end = chunks * (i + 1) / parts_ * chunk;
        }
    }

    // Never throws: what a chunk throws is kept, the first of all threads, and ends the work.
    void take_chunks(int thread) noexcept {
        try {
            for (int i = 0; i < parts_; ++i) take_part(part_[(thread + i) % parts_]);
        } catch (...) {
            if (!failed_.exchange(true)) error_ = std::current_exception();
            for (int i = 0; i < parts_; ++i) part_[i].next.store(part_[i].end, std::memory_order_relaxed);
        }
    }

    // For the caller, once every thread has ended its part.
    void rethrow() const {
        if (error_ != nullptr) std::rethrow_exception(error_);
    }

private:
    static constexpr int kMostParts = 64;
    struct alignas(64) Part {
        std::atomic<int64_t> next;
        int64_t end;
    };

    void take_part(Part& part) {
        while (part.next.load(std::memory_order_relaxed) < part.end) {
            const int64_t begin = part.next.fetch_add(chunk_, std::memory_order_relaxed);
            if (begin >= part.end) return;
            fn_(context_, begin, std::min(begin + chunk_, total_));
        }
    }

    std::atomic<bool> failed_{false};
    std::exception_ptr error_;
    const int64_t total_, chunk_;
    const int parts_;
    const ChunkFn fn_;
    const void* const context_;
    Part part_[kMostParts];
};

// GOMP_parallel(fn, data, num_threads, flags): fn(data) on each of the threads, then a barrier. libgomp defines it, and
// Intel's and LLVM's runtimes do, too.
using OpenmpParallel = void (*)(void (*)(void*), void*, unsigned, unsigned);
using OpenmpThread = int (*)();
std::atomic<OpenmpParallel> g_openmp{nullptr};
std::atomic<OpenmpThread> g_openmp_thread{nullptr};

void run_on_openmp(OpenmpParallel parallel, int threads, Job& job) {
    parallel(
        [](void* data) {
            const bool outer = t_inside_pool;
            t_inside_pool = true;
            static_cast<Job*>(data)->take_chunks(g_openmp_thread.load(std::memory_order_relaxed)());
            t_inside_pool = outer;
        },
        &job, static_cast<unsigned>(threads), 0);
}

#if defined(__linux__)
// Writes the path of a loaded OpenMP runtime to the std::string `path` and stops there.
int find_openmp(dl_phdr_info* info, size_t, void* path) {
    const char* base = std::strrchr(info->dlpi_name, '/');
    base = base != nullptr ? base + 1 : info->dlpi_name;
    for (const char* name : {"libgomp", "libiomp5", "libomp"})
        if (std::strncmp(base, name, std::strlen(name)) == 0) {
            *static_cast<std::string*>(path) = info->dlpi_name;
            return 1;
        }
    return 0;
}
#endif

class Pool {
public:
    explicit Pool(int wanted) : wanted_(wanted) {
        workers_.reserve(static_cast<size_t>(wanted));
        try {
            for (int i = 0; i < wanted; ++i) {
                workers_.push_back(std::make_unique<Worker>());
                Worker& worker = *workers_.back();
                worker.thread = std::thread([this, &worker, i] { work(worker, i); });
            }
        } catch (const std::system_error&) {
            workers_.pop_back();  // the system refuses more threads: work with those it gave
        } catch (...) {           // no memory: the threads that began must end before what they look at
            if (!workers_.empty() && !workers_.back()->thread.joinable()) workers_.pop_back();
            stop();
            throw;
        }
    }

    ~Pool() { stop(); }

    int wanted() const { return wanted_; }

    // On the caller and at most `helpers` threads; the others sleep on.
    void run(Job& job, int helpers) {
        helpers = std::min(helpers, static_cast<int>(workers_.size()));
        job_ = &job;
        left_.store(0, std::memory_order_relaxed);
        gate_.store((posted_.load(std::memory_order_relaxed) / kHelpers + 1) * kJoined, std::memory_order_release);
        post(helpers);
        job.take_chunks(0);
        // Nothing is left to take: workers that have not begun, since other processes have the cores, need not. Those
        // that have begun hold a pointer into the caller's frame until they leave.
        const uint64_t joined = gate_.exchange(0, std::memory_order_relaxed) % kJoined;
        for (Spin spin; left_.load(std::memory_order_acquire) != joined;) spin.wait_or_yield();
    }

private:
    struct Worker {
        std::thread thread;
        std::mutex mutex;
        std::condition_variable wake;
        std::atomic<bool> parked{false};
    };

    // One number says that there is a job and for how many: the workers below `helpers` take part. Another says which
    // job can be joined, if one can, and how many have: run() waits for these.
    static constexpr uint64_t kHelpers = 2048, kJoined = 2048;
    static_assert(kMaxThreads < static_cast<int>(kHelpers) && kMaxThreads < static_cast<int>(kJoined));

    void stop() {
        stopping_.store(true);
        post(static_cast<int>(workers_.size()));
        for (auto& worker : workers_) worker->thread.join();
    }

    void post(int helpers) {
        const uint64_t jobs = posted_.load(std::memory_order_relaxed) / kHelpers + 1;
        posted_.store(jobs * kHelpers + static_cast<uint64_t>(helpers));
        for (int i = 0; i < helpers; ++i) {
            Worker& worker = *workers_[static_cast<size_t>(i)];
            if (!worker.parked.load()) continue;
            std::lock_guard<std::mutex> lock(worker.mutex);
            worker.wake.notify_one();
        }
    }

    // Jobs begin with 1, so that a worker takes part in the first, too.
    bool counts(uint64_t posted, uint64_t seen, int index) const {
        return posted != seen && static_cast<uint64_t>(index) < posted % kHelpers;
    }

    void work(Worker& self, int index) {
        t_inside_pool = true;
        uint64_t seen = 0;
        const auto wanted = [&] { return counts(posted_.load(), seen, index); };
        for (;;) {
            for (Spin spin; !wanted() && spin.wait();) {
            }
            if (!wanted()) {
                std::unique_lock<std::mutex> lock(self.mutex);
                self.parked.store(true);  // before it looks again: whoever posts looks the other way round
                self.wake.wait(lock, wanted);
                self.parked.store(false);
            }
            const uint64_t before = seen;
            seen = posted_.load();
            if (stopping_.load()) return;
            if (!counts(seen, before, index) || !join(seen / kHelpers)) continue;
            job_->take_chunks(index + 1);
            left_.fetch_add(1, std::memory_order_release);
        }
    }

    // False if the job has ended, or another has begun.
    bool join(uint64_t job) {
        uint64_t gate = gate_.load(std::memory_order_relaxed);
        while (gate / kJoined == job)
            if (gate_.compare_exchange_weak(gate, gate + 1, std::memory_order_acquire)) return true;
        return false;
    }

    const int wanted_;
    std::vector<std::unique_ptr<Worker>> workers_;
    std::atomic<bool> stopping_{false};
    std::atomic<uint64_t> posted_{0};
    std::atomic<uint64_t> gate_{0}, left_{0};
    Job* job_ = nullptr;
};

struct PoolOwner {
    std::mutex busy;       // held by the caller whose job is in flight
    Pool* pool = nullptr;  // made on first use; guarded by `busy`
};

PoolOwner* g_owner = nullptr;

PoolOwner& owner() {
    static const bool once = [] {
        g_owner = new PoolOwner;  // never destroyed: workers may outlive static destruction
        // Forget the parent's threads (libgomp would wait for them for ever) and make a pool on demand.
        in_forked_children([] {
            g_owner = new PoolOwner;
            g_openmp.store(nullptr);
        });
        return true;
    }();
    (void)once;
    return *g_owner;
}

}  // namespace

int num_threads() { return thread_count().load(std::memory_order_relaxed); }

void set_num_threads(int n) {
    if (n < 1 || n > kMaxThreads)
        throw std::invalid_argument("set_num_threads: n must be between 1 and " + std::to_string(kMaxThreads) +
                                    ", got " + std::to_string(n));
    thread_count().store(n, std::memory_order_relaxed);
}

bool adopt_openmp() {
#if defined(__linux__)
    owner();  // installs the fork handler
    std::string path;
    if (dl_iterate_phdr(find_openmp, &path) != 0)
        // Only a second handle to what is loaded already; it stays open with the process.
        if (void* handle = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD)) {
            void* const thread = dlsym(handle, "omp_get_thread_num");
            g_openmp_thread.store(reinterpret_cast<OpenmpThread>(thread));
            if (thread != nullptr) g_openmp.store(reinterpret_cast<OpenmpParallel>(dlsym(handle, "GOMP_parallel")));
        }
#endif
    return g_openmp.load() != nullptr;
}

void parallel_for_erased(int64_t total, int64_t grain, ChunkFn fn, const void* context) {
    if (total <= 0) return;
    const int threads = num_threads();
    const int64_t grains = (total + grain - 1) / grain;
    if (threads == 1 || grains == 1 || t_inside_pool) return fn(context, 0, total);
    PoolOwner& o = owner();
    std::unique_lock<std::mutex> lock(o.busy, std::try_to_lock);
    if (!lock.owns_lock()) return fn(context, 0, total);
    const int64_t pieces = std::min<int64_t>(grains, int64_t{threads} * kChunksPerThread);
    Job job(total, (grains + pieces - 1) / pieces * grain, static_cast<int>(std::min<int64_t>(pieces, threads)), fn,
            context);
    if (const OpenmpParallel parallel = g_openmp.load(std::memory_order_acquire)) {
        // With all of them, always: libgomp ends threads that one region does not need, and starts them for the next.
        run_on_openmp(parallel, threads, job);
        return job.rethrow();
    }
    if (o.pool == nullptr || o.pool->wanted() != threads - 1) {
        delete o.pool;
        o.pool = nullptr;
        o.pool = new Pool(threads - 1);
    }
    t_inside_pool = true;  // a nested call must not try to lock `busy` a second time
    o.pool->run(job, static_cast<int>(std::min<int64_t>(pieces, threads)) - 1);
    t_inside_pool = false;
    job.rethrow();
}

}  // namespace zeropoint
