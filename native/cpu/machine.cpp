#include "cpu/machine.h"

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#if defined(__linux__)
#include <sched.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#elif defined(_WIN32)
#include <windows.h>
#endif
#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace zeropoint {
namespace {

// The first word of a file; empty if there is none.
std::string word_in(const std::string& path) {
    std::ifstream file(path);
    std::string word;
    file >> word;
    return word;
}

// "0-3,8,10-11", as Linux lists CPUs. What is no such list is empty.
std::vector<int> cpu_list(const std::string& text) {
    std::vector<int> cpus;
    std::istringstream parts(text);
    for (std::string part; std::getline(parts, part, ',');) {
        int first = 0, last = 0;
        char dash = 0;
        std::istringstream range(part);
        if (!(range >> first)) return {};
        if (!(range >> dash >> last)) last = first;
        constexpr int kMost = 1 << 16;
        if (first < 0 || last < first || last > kMost) return {};
        for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
    }
    return cpus;
}

// "32K", "1024K", "32M". 0 for anything else.
int64_t size_in(const std::string& text) {
    int64_t size = 0;
    char unit = 0;
    std::istringstream in(text);
    if (!(in >> size) || size <= 0 || size > (int64_t{1} << 30)) return 0;
    in >> unit;
    return unit == 'K' ? size << 10 : unit == 'M' ? size << 20 : size;
}

void set_cache(Machine& m, int level, int64_t bytes, int sharers) {
    if (bytes <= 0) return;
    if (level == 1) m.l1_bytes = bytes;
    if (level == 2) m.l2_bytes = bytes;
    if (level == 3) {
        m.l3_bytes = bytes;
        m.l3_cpus = std::max(1, sharers);
    }
}

std::vector<int> allowed_cpus() {
    std::vector<int> cpus;
#if defined(__linux__)
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
            if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
#elif defined(_WIN32)
    DWORD_PTR mine = 0, all = 0;  // of the first 64, where there are more
    if (GetProcessAffinityMask(GetCurrentProcess(), &mine, &all))
        for (int cpu = 0; cpu < 64; ++cpu)
            if ((mine >> cpu & 1u) != 0) cpus.push_back(cpu);
#endif
#if defined(__EMSCRIPTEN__) && !defined(__EMSCRIPTEN_PTHREADS__)
    const unsigned count = 1;  // however many the machine has
#else
    const unsigned count = std::max(1u, std::thread::hardware_concurrency());
#endif
    if (cpus.empty())
        for (unsigned cpu = 0; cpu < count; ++cpu) cpus.push_back(static_cast<int>(cpu));
    return cpus;
}

#if defined(_WIN32)
// Cores that have one of these CPUs.
int cores_of(const std::vector<int>& cpus) {
    DWORD bytes = 0;
    (void)GetLogicalProcessorInformationEx(RelationProcessorCore, nullptr, &bytes);
    std::vector<uint64_t> memory(bytes / sizeof(uint64_t) + 1);
    auto* first = reinterpret_cast<SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX*>(memory.data());
    if (!GetLogicalProcessorInformationEx(RelationProcessorCore, first, &bytes)) return static_cast<int>(cpus.size());
    DWORD_PTR mine = 0;
    for (const int cpu : cpus) mine |= DWORD_PTR{1} << cpu;
    int cores = 0;
    for (DWORD at = 0; at < bytes;) {
        const auto* core =
            reinterpret_cast<const SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX*>(reinterpret_cast<const char*>(first) + at);
        const GROUP_AFFINITY& group = core->Processor.GroupMask[0];
        if (group.Group == 0 && (group.Mask & mine) != 0) ++cores;
        at += core->Size;
    }
    return std::max(1, cores);
}
#elif defined(__APPLE__)
int64_t sysctl_number(const char* name) {
    int64_t value = 0;
    size_t size = sizeof value;
    return sysctlbyname(name, &value, &size, nullptr, 0) == 0 ? value : 0;
}

// Of the fast cores, where there are two kinds. What Apple calls L2 is shared by them; there is no L3 that a core sees.
Machine from_sysctl() {
    Machine m;
    const auto of_fast_cores = [](const std::string& name) {
        const int64_t fast = sysctl_number(("hw.perflevel0." + name).c_str());
        return fast > 0 ? fast : sysctl_number(("hw." + name).c_str());
    };
    set_cache(m, 1, of_fast_cores("l1dcachesize"), 1);
    const int64_t shared = of_fast_cores("l2cachesize"), sharers = std::max<int64_t>(1, of_fast_cores("cpusperl2"));
    set_cache(m, 2, shared / sharers, 1);
    set_cache(m, 3, sysctl_number("hw.l3cachesize"), 1);
    if (shared > 0) m.source = "sysctl";
    m.cores = static_cast<int>(std::max<int64_t>(1, of_fast_cores("physicalcpu")));
    return m;
}
#endif

// Where there is no sysfs: the leaf of cache descriptions, which Intel and AMD number differently and lay out alike.
[[maybe_unused]] Machine from_cpuid() {
    Machine m;
#if defined(__x86_64__)
    const std::string& vendor = cpu_features().vendor;
    const bool amd = vendor == "AuthenticAMD" || vendor == "HygonGenuine";
    const uint32_t leaf = amd ? 0x8000001Du : 4u;
    uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
    __cpuid(amd ? 0x80000000u : 0u, eax, ebx, ecx, edx);
    if (eax < leaf) return m;
    constexpr uint32_t kMostCaches = 16;
    for (uint32_t i = 0; i < kMostCaches; ++i) {
        __cpuid_count(leaf, i, eax, ebx, ecx, edx);
        const uint32_t kind = eax & 31u, level = (eax >> 5) & 7u;
        if (kind == 0) break;
        if (kind == 2) continue;  // of instructions
        const int64_t ways = (ebx >> 22) + 1, partitions = ((ebx >> 12) & 1023u) + 1, line = (ebx & 4095u) + 1;
        set_cache(m, static_cast<int>(level), ways * partitions * line * (int64_t{ecx} + 1),
                  static_cast<int>((eax >> 14) & 4095u) + 1);
        m.source = "CPUID";
    }
#endif
    return m;
}

}  // namespace

Machine read_machine(const std::string& root, const std::vector<int>& allowed, Machine known) {
    Machine m = std::move(known);
    m.cpus = std::max<int>(1, static_cast<int>(allowed.size()));
    std::set<int> cores;  // by the first CPU of each
    for (const int cpu : allowed) {
        const std::string topology = root + "/cpu" + std::to_string(cpu) + "/topology/";
        std::vector<int> siblings = cpu_list(word_in(topology + "core_cpus_list"));
        if (siblings.empty()) siblings = cpu_list(word_in(topology + "thread_siblings_list"));
        cores.insert(siblings.empty() ? cpu : siblings.front());
    }
    m.cores = std::max<int>(1, static_cast<int>(cores.size()));
    if (allowed.empty()) return m;
    constexpr int kMostCaches = 16;
    for (int i = 0; i < kMostCaches; ++i) {
        const std::string cache =
            root + "/cpu" + std::to_string(allowed.front()) + "/cache/index" + std::to_string(i) + "/";
        const std::string level = word_in(cache + "level");
        if (level.empty()) break;
        if (word_in(cache + "type") == "Instruction") continue;
        const int64_t bytes = size_in(word_in(cache + "size"));
        if (bytes == 0) continue;
        set_cache(m, level[0] - '0', bytes, static_cast<int>(cpu_list(word_in(cache + "shared_cpu_list")).size()));
        m.source = "sysfs";
    }
    return m;
}

const Machine& machine() {
#if defined(__linux__)
    static const Machine found = read_machine("/sys/devices/system/cpu", allowed_cpus(), from_cpuid());
#elif defined(__APPLE__)
    static const Machine found = [] {
        Machine m = from_sysctl();
        m.cpus = static_cast<int>(allowed_cpus().size());
        return m;
    }();
#else
    static const Machine found = [] {
        const std::vector<int> cpus = allowed_cpus();
        Machine m = from_cpuid();
        m.cpus = m.cores = static_cast<int>(cpus.size());
#if defined(_WIN32)
        m.cores = cores_of(cpus);
#endif
        return m;
    }();
#endif
    return found;
}

double assumed_macs(Isa isa) {
    constexpr double kHertz = 3e9;
    switch (isa) {
#define LEVEL(name, number, needs, macs)                                                                               \
    case Isa::name: return kHertz * (macs);
#include "cpu/levels.inc"
#undef LEVEL
    }
    return kHertz;
}

int64_t worth_macs(int64_t rows) {
    constexpr double kWeightsPerSecond = 1e11;  // bytes that one core reads from L2
    const double rate = std::min(assumed_macs(active_isa()), static_cast<double>(rows) * kWeightsPerSecond);
    return static_cast<int64_t>(kPartSeconds * rate);
}

}  // namespace zeropoint
