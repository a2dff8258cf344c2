#include "kernels/gemm/amx.h"
#include "kernels/gemm/epilogue.h"
#include "kernels/gemm/vnni.h"
#include "kernels/simd/avx512.h"
#include "kernels/simd/tiles.h"

namespace zeropoint {
namespace {

// acc[m][i] -= sums[m] * w_zero_point[i], for 16 output channels.
void subtract_row_sums(int64_t rows, const uint32_t* sums, const int32_t* w_zero_point, int32_t* acc) {
    const __m512i zero_point = _mm512_loadu_si512(w_zero_point);
    for (int64_t m = 0; m < rows; ++m) {
        const __m512i term = _mm512_mullo_epi32(_mm512_set1_epi32(static_cast<int32_t>(sums[m])), zero_point);
        _mm512_store_si512(acc + m * kPanel, _mm512_sub_epi32(_mm512_load_si512(acc + m * kPanel), term));
    }
}

void multiply(const GemmArgs& a, int64_t begin, int64_t end) {
    // Tiles would be mostly empty, and the weights are what takes time to read.
    if (a.m <= kFewRows) return few_rows_vnni(a, begin, end, kAmxLayout);
    uint32_t sums[kGemmRows];
    if (a.w_zero_point != nullptr) row_sums_vnni(a, sums);
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
