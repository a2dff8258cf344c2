// vpdpbusd on 256-bit vectors (AVX-VNNI): each of eight lanes adds four products u8 x s8 to its int32, exactly. For
// CPUs that have it and no AVX512, as Intel's for desktops and laptops since Alder Lake. The intrinsic stands for the
// encoding of the flags that this file is compiled with; kernel_check has it in AVX512's, for CPUs that have only that.
//
// Tiles of 6 rows x 16 output channels: 12 sums, 2 vectors of weights and 1 of activations fill 15 of 16 registers.
#include "kernels/gemm/direct_avx2.h"
#include "kernels/gemm/epilogue.h"
#include "kernels/gemm/shifted.h"
#include "kernels/gemm/winograd_avx2.h"
#include "kernels/simd/avx2.h"

namespace zeropoint {
namespace {

constexpr PanelLayout kLayout = {4, 4};
constexpr int64_t kStep = 4 * kPanel;  // bytes of weights for four channels
static_assert(kGemmRows % kTile == 0);

inline __attribute__((always_inline)) __m256i four_channels(const uint8_t* x) {
    int32_t four;
    std::memcpy(&four, x, sizeof four);
    return _mm256_set1_epi32(four);
}

// sum[kRows][16] = start + kRows rows times a panel. Few sums would wait for each other: then there are kChains for
// each.
template <int kRows>
inline __attribute__((always_inline)) void sum_up(const GemmArgs& a, const int64_t* rows, const int8_t* w,
                                                  const int32_t* start, __m256i (&sum)[kRows][2]) {
    constexpr int kChains = kRows == 1 ? 4 : kRows == 2 ? 2 : 1;
    __m256i part[kChains][kRows][2];
#pragma GCC unroll 4
    for (int k = 0; k < kChains; ++k)
#pragma GCC unroll 6
        for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 2
            for (int j = 0; j < 2; ++j)
                part[k][i][j] =
                    k == 0 ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(start) + j) : _mm256_setzero_si256();
    const auto step = [&](const uint8_t* const(&row)[kRows], int64_t c, const int8_t* at, __m256i(&to)[kRows][2])
                          __attribute__((always_inline)) {
                              const __m256i w0 = _mm256_load_si256(reinterpret_cast<const __m256i*>(at));
                              const __m256i w1 = _mm256_load_si256(reinterpret_cast<const __m256i*>(at) + 1);
#pragma GCC unroll 6
                              for (int i = 0; i < kRows; ++i) {
                                  const __m256i x = four_channels(row[i] + 4 * c);
                                  to[i][0] = _mm256_dpbusd_epi32(to[i][0], x, w0);
                                  to[i][1] = _mm256_dpbusd_epi32(to[i][1], x, w1);
                              }
                          };
    const int64_t steps = (a.channels + 3) / 4;
    for (int64_t t = 0; t < a.tap_count; ++t) {
        const uint8_t* row[kRows];
#pragma GCC unroll 6
        for (int i = 0; i < kRows; ++i) row[i] = static_cast<const uint8_t*>(a.x) + rows[i] + a.taps[t];
        int64_t c = 0;
        for (; c + kChains <= steps; c += kChains, w += kChains * kStep)
#pragma GCC unroll 4
            for (int k = 0; k < kChains; ++k) step(row, c + k, w + k * kStep, part[k]);
        for (; c < steps; ++c, w += kStep) step(row, c, w, part[0]);
    }
#pragma GCC unroll 6
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 2
        for (int j = 0; j < 2; ++j) {
            sum[i][j] = part[0][i][j];
#pragma GCC unroll 4
            for (int k = 1; k < kChains; ++k) sum[i][j] = _mm256_add_epi32(sum[i][j], part[k][i][j]);
        }
}

// One panel: where its weights are, what its sums begin with, and what becomes of them.
struct Panel {
    const int8_t* weights;
    const int32_t* start;          // 16
    const int32_t* w_zero_point;   // 16, or null
    const uint32_t* row_sums;      // of all rows, if there are zero points
    const DirectEpilogue* direct;  // else sums stay in `acc`
    int32_t* acc;
};

// Tiles of kRows rows from row m to row `end`. Not inlined: alone, the loop finds a register for every sum.
template <int kRows>
__attribute__((noinline)) void tiles(const GemmArgs& a, const Panel& p, int64_t m, int64_t end) {
    for (; m < end; m += kRows) {
        __m256i sum[kRows][2];
        sum_up(a, a.rows + m, p.weights, p.start, sum);
        if (p.w_zero_point != nullptr)
#pragma GCC unroll 6
            for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 2
                for (int j = 0; j < 2; ++j) {
                    const __m256i zero = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p.w_zero_point) + j);
                    const __m256i of_row = _mm256_set1_epi32(static_cast<int32_t>(p.row_sums[m + i]));
                    sum[i][j] = _mm256_sub_epi32(sum[i][j], _mm256_mullo_epi32(zero, of_row));
                }
        if (p.direct != nullptr) {
            p.direct->store(sum, a.y_rows + m);
            continue;
        }
#pragma GCC unroll 6
        for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 2
            for (int j = 0; j < 2; ++j)
                _mm256_store_si256(reinterpret_cast<__m256i*>(p.acc + (m + i) * kPanel) + j, sum[i][j]);
    }
}

void rows_of(const GemmArgs& a, const Panel& p, int64_t height, int64_t begin, int64_t end) {
    switch (begin < end ? height : 0) {
        case 1: return tiles<1>(a, p, begin, end);
        case 2: return tiles<2>(a, p, begin, end);
        case 3: return tiles<3>(a, p, begin, end);
        case 4: return tiles<4>(a, p, begin, end);
        case 5: return tiles<5>(a, p, begin, end);
        case 6: return tiles<6>(a, p, begin, end);
        default: return;
    }
}

void multiply(const GemmArgs& a, int64_t begin, int64_t end) {
    uint32_t sums[kGemmRows];
    if (a.w_zero_point != nullptr) row_sums(a, sums);
    const int64_t size = a.tap_count * kLayout.padded(a.channels) * kPanel;
    // As few tiles as possible, of as many rows or one less.
    const int64_t tile_count = (a.m + kTile - 1) / kTile,
                  most = tile_count == 0 ? 0 : (a.m + tile_count - 1) / tile_count;
    const int64_t middle = (a.m - tile_count * (most - 1)) * most;
    alignas(64) int32_t acc[kGemmRows * kPanel];
    for (int64_t p = begin; p < end; ++p) {
        const bool is_direct = DirectEpilogue::fits(a.epilogue, a.n - p * kPanel);
        const DirectEpilogue direct(a.epilogue, a.y, p);
        const Panel panel{a.panels + p * size,
                          is_direct ? a.epilogue.bias + p * kPanel : kNoSums,
                          a.w_zero_point != nullptr ? a.w_zero_point + p * kPanel : nullptr,
                          sums,
                          is_direct ? &direct : nullptr,
                          acc};
        rows_of(a, panel, most, 0, middle);
        rows_of(a, panel, most - 1, middle, a.m);
        if (!is_direct) PanelEpilogue<Avx2>(a.epilogue, a.y, p, a.n - p * kPanel)(acc, a.m, a.y_rows);
    }
}

}  // namespace

const GemmKernel& gemm_avx_vnni() {
    // Those of AVX2 in multiplications that are twice as fast, as most of the work is the same.
    constexpr WinogradCosts kCosts = {11, 6.6, 32, 2};
    static const WinogradKernel winograd = {16, kCosts, winograd_transform<ShiftedWords>,
                                            winograd_multiply<ShiftedWords>};
    static const GemmKernel kernel = {kLayout, Operand::shifted, convert_shifted, multiply, &winograd};
    return kernel;
}

}  // namespace zeropoint
