// Advice to the operating system about large, freshly allocated outputs.
#pragma once

#include <cstddef>

namespace zeropoint {

// Outputs at least this large are worth a system call: below it, ordinary 4 kB page faults cost less than they save.
constexpr size_t kHugePageThreshold = size_t{4} << 20;

// Ask for 2 MB pages behind [data, data + bytes) before it is first written, if it is large. Writing 64 MB of fresh 4
// kB pages costs 16384 page faults, more than the arithmetic; with 2 MB pages it costs 32. Harmless if already touched,
// refused or unsupported.
void prepare_output(void* data, size_t bytes);

}  // namespace zeropoint
