#include "kernels/gemm/centered.h"
#include "kernels/gemm/epilogue.h"
#include "kernels/simd/portable.h"
#include "kernels/conversions.h"

namespace zeropoint {
namespace {

constexpr int64_t kTile = 4;  // rows

// acc[kTile][16] += rows times a panel, two channels at a time. Unsigned, because signed sums must not wrap in C++.
void accumulate(const GemmArgs& a, const int64_t* rows, int64_t count, const int8_t* w, const int32_t* w_zero_point,
                uint32_t (*acc)[kPanel]) {
    const int16_t* x = static_cast<const int16_t*>(a.x);
    const int64_t pairs = (a.channels + 1) / 2;
    for (int64_t t = 0; t < a.tap_count; ++t)
        for (int64_t c = 0; c < pairs; ++c, w += 2 * kPanel) {
            int32_t w0[kPanel], w1[kPanel];
            for (int i = 0; i < kPanel; ++i) {
                w0[i] = w[2 * i] - w_zero_point[i];
                w1[i] = w[2 * i + 1] - w_zero_point[i];
            }
            for (int64_t m = 0; m < count; ++m) {
                const int16_t* at = x + rows[m] + a.taps[t] + 2 * c;
                const int32_t x0 = at[0], x1 = at[1];
                for (int i = 0; i < kPanel; ++i) acc[m][i] += static_cast<uint32_t>(x0 * w0[i] + x1 * w1[i]);
            }
        }
}

void multiply(const GemmArgs& a, int64_t begin, int64_t end) {
    const int64_t panel_size = a.tap_count * ((a.channels + 1) / 2 * 2) * kPanel;
    constexpr int32_t kZero[kPanel] = {};
    for (int64_t p = begin; p < end; ++p) {
        const PanelEpilogue<Portable> finish(a.epilogue, a.y, p, a.n - p * kPanel);
        const int32_t* w_zero_point = a.w_zero_point != nullptr ? a.w_zero_point + p * kPanel : kZero;
        for (int64_t m = 0; m < a.m; m += kTile) {
            const int64_t count = a.m - m < kTile ? a.m - m : kTile;
            uint32_t acc[kTile][kPanel] = {};
            accumulate(a, a.rows + m, count, a.panels + p * panel_size, w_zero_point, acc);
            int32_t sums[kTile * kPanel];
            std::memcpy(sums, acc, sizeof sums);
            finish(sums, count, a.y_rows + m);
        }
    }
}

}  // namespace

const GemmKernel& gemm_portable() {
    static const GemmKernel kernel = {{2, 2}, Operand::centered, convert_centered, multiply};
    return kernel;
}

}  // namespace zeropoint
