#include "kernels/gemm/winograd_vnni.h"

namespace zeropoint {
namespace {

constexpr PanelLayout kLayout = {4, 4, 4};

void multiply(const GemmArgs& a, int64_t begin, int64_t end) { multiply_vnni(a, begin, end, kLayout); }

void winograd_multiply(const WinogradArgs& a, int64_t begin, int64_t end) {
    winograd_multiply_vnni(a, begin, end, kLayout);
}

}  // namespace

const GemmKernel& gemm_vnni() {
    static const WinogradKernel winograd = {4, kWinogradCostsVnni, winograd_transform_vnni, winograd_multiply};
    static const GemmKernel kernel = {kLayout, Operand::shifted, convert_shifted, multiply, &winograd};
    return kernel;
}

}  // namespace zeropoint
