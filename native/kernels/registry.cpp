#include "kernels/registry.h"

#include "cpu/architectures.h"

#include <array>
#include <cstring>
#include <iterator>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace zeropoint {

#define KERNEL(operation, isa) std::remove_pointer_t<decltype(Kernels::operation)> operation##_##isa;
#include "kernels/all_kernels.inc"
#undef KERNEL

namespace {

// `reference` stands below portable and is taken only when asked for by name.
bool allowed(Isa kernel, Isa level) {
    if (level == Isa::reference) return kernel == Isa::reference;
    return kernel != Isa::reference && includes(level, kernel);
}

}  // namespace

const std::vector<KernelListing>& kernel_list() {
    static const std::vector<KernelListing> list = {
#define KERNEL(operation, isa) {#operation, Isa::isa},
#include "kernels/all_kernels.inc"
#undef KERNEL
    };
    return list;
}

Kernels select_kernels(Isa level) {
    Kernels k;
#define KERNEL(operation, isa)                                                                                         \
    if (k.operation == nullptr && allowed(Isa::isa, level)) k.operation = operation##_##isa;
#include "kernels/all_kernels.inc"
#undef KERNEL
    return k;
}

Isa selected_isa(const char* operation, Isa level) {
    for (const KernelListing& listing : kernel_list())
        if (std::strcmp(listing.operation, operation) == 0 && allowed(listing.isa, level)) return listing.isa;
    throw std::invalid_argument("no kernel '" + std::string(operation) + "' for instruction set '" + isa_name(level) +
                                "'");
}

const Kernels& kernels() {
    static const std::array<Kernels, std::size(kIsas)> chosen = [] {
        std::array<Kernels, std::size(kIsas)> a;
        for (Isa level : kIsas) a[static_cast<size_t>(static_cast<int>(level) + 1)] = select_kernels(level);
        return a;
    }();
    return chosen[static_cast<size_t>(static_cast<int>(active_isa()) + 1)];
}

}  // namespace zeropoint
