#include "cpu/features.h"
#include "kernels/gemm/winograd_vnni.h"

namespace zeropoint {
namespace {

constexpr PanelLayout kLayout = {4, 4, 4};

template <LookUpPlaces kLookUp>
void multiply(const GemmArgs& a, int64_t begin, int64_t end) {
    multiply_vnni(a, begin, end, kLayout, kLookUp);
}

template <LookUpPlaces kLookUp>
void winograd_multiply(const WinogradArgs& a, int64_t begin, int64_t end) {
    winograd_multiply_vnni(a, begin, end, kLayout, kLookUp);
}

template <LookUpPlaces kLookUp>
const GemmKernel& kernel() {
    static const WinogradKernel winograd = {4, kWinogradCostsVnni, winograd_transform_vnni, winograd_multiply<kLookUp>};
    static const GemmKernel made = {kLayout, Operand::shifted, convert_shifted, multiply<kLookUp>, &winograd};
    return made;
}

}  // namespace

// What gemm_vnni() is on CPUs without VBMI.
const GemmKernel& gemm_vnni_without_vbmi() { return kernel<look_up_places>(); }

const GemmKernel& gemm_vnni() {
    return cpu_features().avx512_vbmi ? kernel<look_up_places_vbmi>() : gemm_vnni_without_vbmi();
}

}  // namespace zeropoint
