// The choice itself: which level these CPU flags allow, and which kernel a level takes. Any host checks every answer.
#pragma once

#include "check/kernels.h"

#include <cstring>
#include <stdexcept>

namespace zeropoint::check {

// What a call throws as std::invalid_argument; empty if it does not.
template <class Call>
std::string refusal(const Call& call) {
    try {
        call();
    } catch (const std::invalid_argument& error) {
        return error.what();
    }
    return "";
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

inline void check_best_isa(Report& report) {
    Check c("selection", "best_isa of all features");
    for (FeatureSet offered = 0; offered < 1u << feature_list().size(); ++offered) {
        const Isa best = best_isa(offered);
        c.expect((needs_of(best) & ~offered) == 0 && best != Isa::reference,
                 [&] { return "features " + std::to_string(offered) + " give " + isa_name(best); });
        for (Isa isa : kIsas)
            c.expect(isa <= best || (needs_of(isa) & ~offered) != 0,
                     [&] { return "features " + std::to_string(offered) + " allow " + isa_name(isa); });
    }
    for (Isa level : kIsas)
        for (Isa isa : kIsas)
            c.expect(includes(level, isa) == ((needs_of(level) | needs_of(isa)) == needs_of(level)),
                     [&] { return std::string(isa_name(level)) + " and " + isa_name(isa); });
    report.add(c);
}

inline void check_names(Report& report) {
    Check c("selection", "names");
    for (Isa isa : kIsas) c.expect(isa_from_name(isa_name(isa)) == isa, isa_name(isa));
    for (const char* bad : {"", "AVX2", "sse", "avx512vnni"}) {
        const std::string text = refusal([&] { isa_from_name(bad); });
        c.expect(contains(text, "'" + std::string(bad) + "'"), "the error must quote the name");
        for (Isa isa : kIsas) c.expect(contains(text, isa_name(isa)), "the error must list every name");
    }
    for (Isa isa : kIsas) {
        if (why_not(isa).empty()) continue;
        const std::string text = refusal([&] { set_active_isa(isa); });
        c.expect(contains(text, isa_name(isa)) && contains(text, isa_name(best_isa(cpu_features()))),
                 "asking for a level this CPU lacks must name it and the best one");
    }
    report.add(c);
}

// The kernel an operation must use at a level: the highest listed that is not above it; reference only by name.
inline const Listed* expected(const std::string& operation, Isa level) {
    const Listed* best = nullptr;
    for (const Listed& k : listed()) {
        if (k.operation != operation || (k.isa == Isa::reference) != (level == Isa::reference)) continue;
        if (!includes(level, k.isa)) continue;
        if (best == nullptr || static_cast<int>(k.isa) > static_cast<int>(best->isa)) best = &k;
    }
    return best;
}

inline void check_selected(Report& report) {
    Check c("selection", "kernels of every level");
    for (Isa level : kIsas) {
        const Kernels chosen = select_kernels(level);
#define KERNEL(name, variant)                                                                                          \
    {                                                                                                                  \
        const Listed* want = expected(#name, level);                                                                   \
        c.expect(want != nullptr && chosen.name == want->kernels.name && selected_isa(#name, level) == want->isa,      \
                 #name " is not the best kernel of its level");                                                        \
    }
#include "kernels/all_kernels.inc"
#undef KERNEL
    }
    const std::string text = refusal([] { selected_isa("no_such_operation", Isa::portable); });
    c.expect(contains(text, "no_such_operation"), "an unknown operation must be named");
    report.add(c);
}

inline void check_lists(Report& report) {
    Check c("selection", "kernel_list");
    c.expect(kernel_list().size() == listed().size(), "kernel_list() is not the lists");
    for (size_t i = 0; i < std::min(kernel_list().size(), listed().size()); ++i)
        c.expect(kernel_list()[i].operation == listed()[i].operation && kernel_list()[i].isa == listed()[i].isa,
                 [&] { return "entry " + std::to_string(i); });
    for (const Listed& k : listed())
        for (Isa needed : {Isa::reference, Isa::portable})
            c.expect(std::any_of(listed().begin(), listed().end(),
                                 [&](const Listed& o) { return o.operation == k.operation && o.isa == needed; }),
                     [&] { return k.operation + " has no " + isa_name(needed) + " kernel"; });
    report.add(c);
}

inline void check_selection(Report& report) {
    check_best_isa(report);
    check_names(report);
    check_selected(report);
    check_lists(report);
}

}  // namespace zeropoint::check
