#include "kernels/gemm/vnni.h"

#include "cpu/features.h"

namespace zeropoint {
namespace {

constexpr PanelLayout kLayout = {4, 4, 4};

template <LookUpPlaces kLookUp>
void multiply(const GemmArgs& a, int64_t begin, int64_t end) {
    multiply_vnni(a, begin, end, kLayout, kLookUp);
}

}  // namespace

// What gemm_vnni() is on CPUs without VBMI.
const GemmKernel& gemm_vnni_without_vbmi() {
    static const GemmKernel kernel = {kLayout, Operand::shifted, convert_shifted, multiply<look_up_places>};
    return kernel;
}

const GemmKernel& gemm_vnni() {
    static const GemmKernel kernel = {kLayout, Operand::shifted, convert_shifted, multiply<look_up_places_vbmi>};
    return cpu_features().avx512_vbmi ? kernel : gemm_vnni_without_vbmi();
}

}  // namespace zeropoint
