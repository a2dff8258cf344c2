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
    if (!cpu_features().has(needs_of(isa)))
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
#define LEVEL(name, number, needs, macs)                                                                               \
    case Isa::name: return #name;
#include "cpu/levels.inc"
#undef LEVEL
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

Isa best_isa(FeatureSet offered) {
    Isa best = Isa::portable;
    for (Isa isa : kIsas)
        if (isa > best && (needs_of(isa) & ~offered) == 0) best = isa;
    return best;
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
