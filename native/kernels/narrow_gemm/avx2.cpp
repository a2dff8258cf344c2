// vpmaddubsw multiplies bytes and adds pairs of products in 16 bits, where it saturates: at 2 * 128 * -128 = -2^15 and
// 2 * 128 * 127 < 2^15 it does not yet.
//
// Tiles of 6 rows x 16 output channels: 12 sums, 2 vectors of weights, 1 of products and 1 of ones.
#include "kernels/gemm/direct_avx2.h"
#include "kernels/gemm/epilogue.h"
#include "kernels/gemm/shifted.h"
#include "kernels/narrow_gemm/narrow_gemm.h"
#include "kernels/simd/avx2.h"

namespace zeropoint {
namespace {

constexpr PanelLayout kLayout = {4, 4};
constexpr int64_t kTile = 6;

// s0 += x w0, s1 += x w1, with four activations for all. In this order, and with one register beside the sums, the
// weights and the ones, for which x is loaded twice: compilers use two, and then keep a sum in memory.
inline __attribute__((always_inline)) void multiply_add(const uint8_t* x, __m256i w0, __m256i w1, __m256i ones,
                                                        __m256i& s0, __m256i& s1) {
    struct Four {
        uint8_t values[4];
    };
    __m256i v;
    __asm__ volatile("vpbroadcastd %[x], %[v]\n\t"
                     "vpmaddubsw %[w0], %[v], %[v]\n\t"
                     "vpmaddwd %[v], %[ones], %[v]\n\t"
                     "vpaddd %[v], %[s0], %[s0]\n\t"
                     "vpbroadcastd %[x], %[v]\n\t"
                     "vpmaddubsw %[w1], %[v], %[v]\n\t"
                     "vpmaddwd %[v], %[ones], %[v]\n\t"
                     "vpaddd %[v], %[s1], %[s1]"
                     : [s0] "+x"(s0), [s1] "+x"(s1), [v] "=&x"(v)
                     : [x] "m"(*reinterpret_cast<const Four*>(x)), [w0] "x"(w0), [w1] "x"(w1), [ones] "x"(ones));
}

// sum[kPanels][kRows][16] += kRows rows times kPanels neighbouring panels.
template <int kRows, int kPanels>
inline __attribute__((always_inline)) void sum_up(const GemmArgs& a, const int64_t* rows, int64_t panel,
                                                  __m256i (&sum)[kPanels][kRows][2]) {
    const int64_t steps = (a.channels + 3) / 4, panel_size = a.tap_count * steps * 4 * kPanel;
    const __m256i ones = _mm256_set1_epi16(1);
    const int8_t* w = a.panels + panel * panel_size;
    for (int64_t t = 0; t < a.tap_count; ++t) {
        const uint8_t* row[kRows];
#pragma GCC unroll 6
        for (int i = 0; i < kRows; ++i) row[i] = static_cast<const uint8_t*>(a.x) + rows[i] + a.taps[t];
        for (int64_t c = 0; c < steps; ++c, w += 4 * kPanel) {
#pragma GCC unroll 4
            for (int j = 0; j < kPanels; ++j) {
                const __m256i* at = reinterpret_cast<const __m256i*>(w + j * panel_size);
                const __m256i w0 = _mm256_load_si256(at), w1 = _mm256_load_si256(at + 1);
#pragma GCC unroll 6
                for (int i = 0; i < kRows; ++i) multiply_add(row[i] + 4 * c, w0, w1, ones, sum[j][i][0], sum[j][i][1]);
            }
        }
    }
}

// acc[kPanels][kRows][16] = kRows rows times kPanels neighbouring panels.
// Not inlined: alone, the loop finds a register for every pointer.
template <int kRows, int kPanels>
__attribute__((noinline)) void accumulate(const GemmArgs& a, const int64_t* rows, int64_t panel, int32_t* acc) {
    __m256i sum[kPanels][kRows][2];
#pragma GCC unroll 4
    for (int j = 0; j < kPanels; ++j)
#pragma GCC unroll 6
        for (int i = 0; i < kRows; ++i) sum[j][i][0] = sum[j][i][1] = _mm256_setzero_si256();
    sum_up(a, rows, panel, sum);
    __m256i* to = reinterpret_cast<__m256i*>(acc);
#pragma GCC unroll 4
    for (int j = 0; j < kPanels; ++j)
#pragma GCC unroll 6
        for (int i = 0; i < kRows; ++i, to += 2) {
            _mm256_store_si256(to, sum[j][i][0]);
            _mm256_store_si256(to + 1, sum[j][i][1]);
        }
}

// Tiles of kRows rows from row m to row `end`, and their bytes.
template <int kRows>
__attribute__((noinline)) void to_bytes(const GemmArgs& a, int64_t m, int64_t end, int64_t panel,
                                        const DirectEpilogue& finish) {
    const __m256i* const bias = reinterpret_cast<const __m256i*>(a.epilogue.bias + panel * kPanel);
    for (; m < end; m += kRows) {
        __m256i sum[1][kRows][2];
#pragma GCC unroll 6
        for (int i = 0; i < kRows; ++i) {
            sum[0][i][0] = _mm256_loadu_si256(bias);
            sum[0][i][1] = _mm256_loadu_si256(bias + 1);
        }
        sum_up(a, a.rows + m, panel, sum);
        finish.store(sum[0], a.y_rows + m);
    }
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
        int64_t m = a.m / kTile * kTile;
        if (sums == nullptr && DirectEpilogue::fits(a.epilogue, a.n - p * kPanel)) {
            const DirectEpilogue finish(a.epilogue, a.y, p);
            to_bytes<kTile>(a, 0, m, p, finish);
            switch (a.m - m) {
                case 1: to_bytes<1>(a, m, a.m, p, finish); break;
                case 2: to_bytes<2>(a, m, a.m, p, finish); break;
                case 3: to_bytes<3>(a, m, a.m, p, finish); break;
                case 4: to_bytes<4>(a, m, a.m, p, finish); break;
                case 5: to_bytes<5>(a, m, a.m, p, finish); break;
                default: break;
            }
            continue;
        }
        for (m = 0; m + kTile <= a.m; m += kTile) tile<kTile, 1>(a, m, p, sums);
        for (; m < a.m; ++m) tile<1, 1>(a, m, p, sums);
    }
}

}  // namespace

const GemmKernel& narrow_gemm_avx2() {
    static const GemmKernel kernel = {kLayout, Operand::shifted, convert_shifted, multiply};
    return kernel;
}

}  // namespace zeropoint
