// vpmaddubsw multiplies bytes and adds pairs of products in 16 bits, where it saturates: at 2 * 128 * -128 = -2^15 and
// 2 * 128 * 127 < 2^15 it does not yet.
//
// Tiles of 6 rows x 16 output channels: 12 sums, 2 vectors of weights, 1 of activations and 1 of ones.
#include "kernels/gemm/epilogue.h"
#include "kernels/gemm/shifted.h"
#include "kernels/narrow_gemm/narrow_gemm.h"
#include "kernels/simd/avx2.h"

namespace zeropoint {
namespace {

constexpr PanelLayout kLayout = {4, 4};
constexpr int64_t kTile = 6;

// acc[kPanels][kRows][16] = kRows rows times kPanels neighbouring panels.
// Not inlined: alone, the loop finds a register for every pointer.
template <int kRows, int kPanels>
__attribute__((noinline)) void accumulate(const GemmArgs& a, const int64_t* rows, int64_t panel, int32_t* acc) {
    constexpr int kVectors = 2 * kPanels;
    const int64_t steps = (a.channels + 3) / 4, panel_size = a.tap_count * steps * 4 * kPanel;
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i sum[kRows][kVectors];
    for (auto& row : sum)
        for (__m256i& s : row) s = _mm256_setzero_si256();
    const int8_t* w = a.panels + panel * panel_size;
    for (int64_t t = 0; t < a.tap_count; ++t) {
        const uint8_t* row[kRows];
        for (int i = 0; i < kRows; ++i) row[i] = static_cast<const uint8_t*>(a.x) + rows[i] + a.taps[t];
        for (int64_t c = 0; c < steps; ++c, w += 4 * kPanel) {
            __m256i weights[kVectors];
            for (int j = 0; j < kVectors; ++j)
                weights[j] =
                    _mm256_load_si256(reinterpret_cast<const __m256i*>(w + j / 2 * panel_size + j % 2 * 2 * kPanel));
#pragma GCC unroll 6
            for (int i = 0; i < kRows; ++i) {
                const __m256i v = _mm256_broadcastd_epi32(_mm_loadu_si32(row[i] + 4 * c));
                for (int j = 0; j < kVectors; ++j) {
                    const __m256i pairs = _mm256_maddubs_epi16(v, weights[j]);
                    sum[i][j] = _mm256_add_epi32(sum[i][j], _mm256_madd_epi16(pairs, ones));
                }
            }
        }
    }
    for (int i = 0; i < kRows; ++i)
        for (int j = 0; j < kVectors; ++j)
            _mm256_store_si256(reinterpret_cast<__m256i*>(acc + (j / 2 * kRows + i) * kPanel) + j % 2, sum[i][j]);
}

// acc[m][i] -= sums[m] * w_zero_point[i], for 16 output channels.
inline void subtract_row_sums(int64_t rows, const uint32_t* sums, const int32_t* w_zero_point, int32_t* acc) {
    const __m256i* zero_point = reinterpret_cast<const __m256i*>(w_zero_point);
    __m256i* to = reinterpret_cast<__m256i*>(acc);
    for (int64_t m = 0; m < rows; ++m)
        for (int j = 0; j < 2; ++j, ++to) {
            const __m256i sum = _mm256_set1_epi32(static_cast<int32_t>(sums[m]));
            const __m256i term = _mm256_mullo_epi32(sum, _mm256_loadu_si256(zero_point + j));
            _mm256_store_si256(to, _mm256_sub_epi32(_mm256_load_si256(to), term));
        }
}

// kRows rows from m on and kPanels panels from p on, with their epilogue. sums: of the rows, or null.
template <int kRows, int kPanels>
inline void tile(const GemmArgs& a, int64_t m, int64_t p, const uint32_t* sums) {
    alignas(32) int32_t acc[kPanels * kRows * kPanel];
    accumulate<kRows, kPanels>(a, a.rows + m, p, acc);
    for (int j = 0; j < kPanels; ++j) {
        int32_t* part = acc + j * kRows * kPanel;
        if (sums != nullptr) subtract_row_sums(kRows, sums + m, a.w_zero_point + (p + j) * kPanel, part);
        PanelEpilogue<Avx2>(a.epilogue, a.y, p + j, a.n - (p + j) * kPanel)(part, kRows, a.y_rows + m);
    }
}

// One or two rows: more panels at once, else the sums would wait for each other.
template <int kRows, int kPanels>
inline void few_rows(const GemmArgs& a, int64_t begin, int64_t end, const uint32_t* sums) {
    int64_t p = begin;
    for (; p + kPanels <= end; p += kPanels) tile<kRows, kPanels>(a, 0, p, sums);
    for (; p < end; ++p) tile<kRows, 1>(a, 0, p, sums);
}

void multiply(const GemmArgs& a, int64_t begin, int64_t end) {
    uint32_t all[kGemmRows];
    if (a.w_zero_point != nullptr) row_sums(a, all);
    const uint32_t* const sums = a.w_zero_point != nullptr ? all : nullptr;
    if (a.m == 1) return few_rows<1, 4>(a, begin, end, sums);
    if (a.m == 2) return few_rows<2, 2>(a, begin, end, sums);
    for (int64_t p = begin; p < end; ++p) {
        int64_t m = 0;
        for (; m + kTile <= a.m; m += kTile) tile<kTile, 1>(a, m, p, sums);
        switch (a.m - m) {
            case 1: tile<1, 1>(a, m, p, sums); break;
            case 2: tile<2, 1>(a, m, p, sums); break;
            case 3: tile<3, 1>(a, m, p, sums); break;
            case 4: tile<4, 1>(a, m, p, sums); break;
            case 5: tile<5, 1>(a, m, p, sums); break;
            default: break;
        }
    }
}

}  // namespace

const GemmKernel& narrow_gemm_avx2() {
    static const GemmKernel kernel = {kLayout, Operand::shifted, convert_shifted, multiply};
    return kernel;
}

}  // namespace zeropoint
