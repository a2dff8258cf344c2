// What this machine can do at most, measured: profiles and benchmarks compare with it. Plans never ask for it.
#pragma once

#include "cpu/isa.h"

#include <utility>
#include <vector>

namespace zeropoint {

// Of one thread, a second, unless it says otherwise; 0 where the CPU lacks the instruction.
struct Peaks {
    double float_macs = 0;                                              // by the widest fused multiply-add
    double l1_bytes = 0, l2_bytes = 0, l3_bytes = 0, memory_bytes = 0;  // read
    double all_memory_bytes = 0;                                        // by all threads together
    double hand_over_seconds = 0;  // until a thread that spins has done its part of nothing, and said so
    double wake_seconds = 0;       // the same of one that sleeps
    int threads = 1;               // that all_memory_bytes was measured with

    std::vector<std::pair<Isa, double>> products;  // of bytes, by the instruction of each level that has one

    double macs(Isa isa) const;  // of `products`, 0 if it is not there
};

// Measured on the first call, which takes up to 50 ms on a machine that is idle, and kept.
const Peaks& peaks();

}  // namespace zeropoint
