// The machine, in one place: caches, cores, and what it costs to hand work to another thread. What is cut into parts,
// how large a part is and how long a thread waits follow from here. What has to be measured is in cpu/peaks.h.
#pragma once

#include "cpu/isa.h"

#include <cstdint>
#include <string>
#include <vector>

namespace zeropoint {

struct Machine {
    // Data caches, as one core sees them: what no source says is assumed.
    int64_t l1_bytes = 32 << 10, l2_bytes = 512 << 10, l3_bytes = 8 << 20;
    int l3_cpus = 1;  // CPUs that share that L3
    int cpus = 1;     // that this process may run on
    int cores = 1;    // of them, with hyperthreads of one core counted once
    std::string source = "assumed";

    // Bytes of L2 that an operand may take, beside the weights and the output that pass through.
    int64_t l2_share() const { return l2_bytes / 4 * 3; }
    // Threads that a process begins with. Hyperthreads of one core share its multipliers: two threads on one were 0.9
    // to 1.5 times as fast as one. They count where there is one core only.
    int useful_threads() const { return cores > 1 ? cores : cpus; }
};

// From files laid out like Linux's /sys/devices/system/cpu, for the CPUs of a process. What they do not say is left as
// it is in `known`: a pure function, for tests.
Machine read_machine(const std::string& root, const std::vector<int>& allowed, Machine known = {});

// This machine: read on first use from sysfs or sysctl, else from CPUID.
const Machine& machine();

// A part of a job takes at least so long: several times what another thread needs to begin with it, if it was waiting
// (0.3 microseconds in our own pool, about one in libgomp's).
constexpr double kPartSeconds = 2e-6;
// How long a thread waits for the next job before it sleeps: longer than the gap between two steps of a network.
constexpr double kSpinSeconds = 20e-6;

// Multiplications a second of the 8-bit kernels for an instruction set on one core of about 3 GHz: what plans assume,
// so that they are made without measuring. Good to a factor of two.
double assumed_macs(Isa isa);
// The smallest part of a layer that is worth a thread, in multiplications of the active kernels, where each weight is
// read from L2 for so many rows.
int64_t worth_macs(int64_t rows);
// The same for layers in float32, and for loops over memory: in elements of so many bytes, the mean of what is read and
// of what is written for each.
constexpr int64_t kWorthFloatMacs = 64 << 10, kWorthBytes = 64 << 10;  // 32 G a second, in kPartSeconds
constexpr int64_t worth_elements(int64_t bytes) { return kWorthBytes / bytes; }

}  // namespace zeropoint
