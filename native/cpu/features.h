// What this CPU can do, as far as the operating system lets us use it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace zeropoint {

// A sum of features.
using FeatureSet = uint32_t;

namespace feature {
#define FEATURE(name, bit, architecture) constexpr FeatureSet name = 1u << (bit);
#include "cpu/features.inc"
#undef FEATURE
}  // namespace feature

struct NamedFeature {
    const char* name;
    FeatureSet bit;
    const char* architecture;
};
const std::vector<NamedFeature>& feature_list();

// A feature is offered only if the CPU has it AND the operating system saves the registers it needs (XCR0) AND, for
// AMX, a known-answer tile multiply came out right.
struct CpuFeatures {
    FeatureSet offered = 0;
    std::array<std::string, 32>
        notes;  // by bit: why a feature is off, or what is unusual about it; empty if plainly on

    std::string architecture;  // "x86_64", "aarch64" or "other"
    std::string vendor;        // "GenuineIntel", "AuthenticAMD", "ARM implementer 0x41", ...
    std::string brand;         // the marketing name, trimmed

    bool has(FeatureSet features) const { return (features & ~offered) == 0; }
    // The reason of the first of these that is off; empty if none is.
    std::string why_not(FeatureSet features) const;
};

// Detected once, on first use; thread-safe.
const CpuFeatures& cpu_features();

}  // namespace zeropoint
