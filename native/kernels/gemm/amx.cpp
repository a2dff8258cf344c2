#include "kernels/gemm/amx.h"
#include "kernels/gemm/vnni.h"
#include "kernels/simd/tiles.h"

namespace zeropoint {
namespace {

// Up to so many rows, tiles are mostly empty and the weights are what takes time to read.
constexpr int64_t kFewRows = 4;

void multiply(const GemmArgs& a, int64_t begin, int64_t end) {
    if (a.m <= kFewRows) return multiply_vnni(a, begin, end, kAmxLayout.padded(a.channels));
    uint32_t sums[kGemmRows];
    if (a.w_zero_point != nullptr) row_sums(a, sums);
    multiply_amx<AmxTiles>(a, begin, end, [&](int64_t p, int64_t m, int64_t rows, int32_t* acc) {
        if (a.w_zero_point != nullptr) subtract_row_sums(rows, sums + m, a.w_zero_point + p * kPanel, acc);
        PanelEpilogue<Avx512>(a.epilogue, a.y, p, a.n - p * kPanel)(acc, rows, a.y_rows + m);
    });
}

}  // namespace

const GemmKernel& gemm_amx() {
    static const GemmKernel kernel = {kAmxLayout, Operand::shifted, convert_shifted, multiply};
    return kernel;
}

}  // namespace zeropoint
