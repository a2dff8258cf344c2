#include "kernels/gemm/vnni.h"

namespace zeropoint {
namespace {

constexpr PanelLayout kLayout = {4, 4, 4};

void multiply(const GemmArgs& a, int64_t begin, int64_t end) { multiply_vnni(a, begin, end, kLayout); }

}  // namespace

const GemmKernel& gemm_vnni() {
    static const GemmKernel kernel = {kLayout, Operand::shifted, convert_shifted, multiply};
    return kernel;
}

}  // namespace zeropoint
