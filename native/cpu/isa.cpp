#include "cpu/isa.h"

#include <atomic>
#include <cstdlib>
#include <stdexcept>

namespace zeropoint {
namespace {

constexpr int kUnset = -100;
std::atomic<int> g_active{kUnset};

void require_available(Isa isa, const std::string& asked_by) {
    const Isa best = best_isa(cpu_features());
    if (!includes(best, isa))
        throw std::invalid_argument(asked_by + " asks for '" + isa_name(isa) + "', but this CPU's best is '" +
                                    isa_name(best) + "' (see zeropoint.cpu_info())");
}

Isa initial_isa() {
    const char* forced = std::getenv("ZEROPOINT_ISA");
    if (forced == nullptr || *forced == '\0') return best_isa(cpu_features());
    Isa isa;
    try {
        isa = isa_from_name(forced);
    } catch (const std::invalid_argument& error) {
        throw std::invalid_argument(std::string("ZEROPOINT_ISA: ") + error.what());
    }
    require_available(isa, "ZEROPOINT_ISA");
    return isa;
}

}  // namespace

const char* isa_name(Isa isa) {
    switch (isa) {
        case Isa::reference: return "reference";
        case Isa::portable: return "portable";
        case Isa::avx2: return "avx2";
        case Isa::avx512: return "avx512";
        case Isa::vnni: return "vnni";
        case Isa::amx: return "amx";
        case Isa::neon: return "neon";
        case Isa::dotprod: return "dotprod";
        case Isa::i8mm: return "i8mm";
    }
    return "?";
}

Isa isa_from_name(const std::string& name) {
    std::string known;
    for (Isa isa : kIsas) {
        if (name == isa_name(isa)) return isa;
        known += (known.empty() ? "" : ", ") + std::string(isa_name(isa));
    }
    throw std::invalid_argument("unknown instruction set '" + name + "'; expected one of " + known);
}

Isa best_isa(const CpuFeatures& f) {
    if (f.amx_int8) return Isa::amx;
    if (f.avx512_vnni) return Isa::vnni;
    if (f.avx512) return Isa::avx512;
    if (f.avx2) return Isa::avx2;
    if (f.i8mm) return Isa::i8mm;
    if (f.dotprod) return Isa::dotprod;
    if (f.neon) return Isa::neon;
    return Isa::portable;
}

Isa active_isa() {
    int level = g_active.load(std::memory_order_relaxed);
    if (level == kUnset) {
        level = static_cast<int>(initial_isa());
        g_active.store(level, std::memory_order_relaxed);
    }
    return static_cast<Isa>(level);
}

void set_active_isa(Isa isa) {
    require_available(isa, "set_isa");
    g_active.store(static_cast<int>(isa), std::memory_order_relaxed);
}

}  // namespace zeropoint
