// The ladder of instruction sets our kernels are written for, and which rung this process stands on.
#pragma once

#include "cpu/features.h"

#include <string>

namespace zeropoint {

// Ordered: each level implies the ones before it that its architecture has (avx2 to amx are those of x86-64, neon to
// i8mm those of 64-bit ARM). `reference` is the plain specification and is never chosen by itself.
enum class Isa {
    reference = -1,
    portable = 0,
    avx2 = 1,
    avx512 = 2,
    vnni = 3,
    amx = 4,
    neon = 5,
    dotprod = 6,
    i8mm = 7
};
constexpr Isa kIsas[] = {Isa::reference, Isa::portable, Isa::avx2,    Isa::avx512, Isa::vnni,
                         Isa::amx,       Isa::neon,     Isa::dotprod, Isa::i8mm};

// Whether a CPU of this level can run the kernels of `isa`.
constexpr bool includes(Isa level, Isa isa) {
    return isa <= Isa::portable || (isa <= level && (isa >= Isa::neon) == (level >= Isa::neon));
}

const char* isa_name(Isa isa);
// Throws std::invalid_argument, listing the accepted names, if `name` is not one of them.
Isa isa_from_name(const std::string& name);

// The best level these features allow: a pure function, so every host can test every answer.
Isa best_isa(const CpuFeatures& features);

// The level kernels are selected for: ZEROPOINT_ISA if set, else the best this CPU has.
// Throws std::invalid_argument if ZEROPOINT_ISA names an unknown level or one this CPU lacks.
Isa active_isa();

// Replace the active level (tests and benchmarks). Throws std::invalid_argument if this CPU lacks it.
void set_active_isa(Isa isa);

}  // namespace zeropoint
