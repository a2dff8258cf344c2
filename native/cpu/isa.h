// The instruction sets that kernels are written for, as sets of CPU features, and which of them this process uses.
#pragma once

#include "cpu/features.h"

#include <string>

namespace zeropoint {

// What a kernel needs, and what a process uses of a CPU. The numbers are a preference, best last: of two levels neither
// need include the other. `reference` is the plain specification and is never chosen by itself.
enum class Isa {
#define LEVEL(name, number, needs, macs) name = (number),
#include "cpu/levels.inc"
#undef LEVEL
};
constexpr Isa kIsas[] = {
#define LEVEL(name, number, needs, macs) Isa::name,
#include "cpu/levels.inc"
#undef LEVEL
};

constexpr FeatureSet needs_of(Isa isa) {
    switch (isa) {
#define LEVEL(name, number, needs, macs)                                                                               \
    case Isa::name: return needs;
#include "cpu/levels.inc"
#undef LEVEL
    }
    return 0;
}

// Whether a CPU of this level can run the kernels of `isa`.
constexpr bool includes(Isa level, Isa isa) { return (needs_of(isa) & ~needs_of(level)) == 0; }

const char* isa_name(Isa isa);
// Throws std::invalid_argument, listing the accepted names, if `name` is not one of them.
Isa isa_from_name(const std::string& name);

// The best level that these features allow: a pure function, so every host can test every answer.
Isa best_isa(FeatureSet offered);
inline Isa best_isa(const CpuFeatures& features) { return best_isa(features.offered); }

// The level kernels are selected for: ZEROPOINT_ISA if set, else the best this CPU has.
// Throws std::invalid_argument if ZEROPOINT_ISA names an unknown level or one this CPU lacks.
Isa active_isa();

// Replace the active level (tests and benchmarks). Throws std::invalid_argument if this CPU lacks it.
void set_active_isa(Isa isa);

}  // namespace zeropoint
