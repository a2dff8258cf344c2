#include "kernels/depthwise/depthwise.h"
#include "kernels/gemm/centered.h"
#include "kernels/gemm/epilogue.h"
#include "kernels/simd/portable.h"

namespace zeropoint {
namespace {

void multiply(const DepthwiseArgs& a, int64_t begin, int64_t end) {
    const int64_t pairs = (a.tap_count + 1) / 2;
    for (int64_t block = begin; block < end; ++block) {
        const PanelEpilogue<Portable> finish(a.epilogue, a.y, block, a.channels - block * kPanel);
        const int16_t* w = a.w + block * pairs * kPanel * 2;
        for (int64_t m = 0; m < a.m; ++m) {
            uint32_t acc[kPanel] = {};
            for (int64_t t = 0; t < a.tap_count; ++t) {
                const int16_t* x = a.x + a.rows[m] + a.taps[t] + block * kPanel;
                const int16_t* weights = w + t / 2 * kPanel * 2 + t % 2;
                for (int i = 0; i < kPanel; ++i) acc[i] += static_cast<uint32_t>(x[i] * weights[2 * i]);
            }
            int32_t sums[kPanel];
            std::memcpy(sums, acc, sizeof sums);
            finish(sums, 1, a.y_rows + m);
        }
    }
}

}  // namespace

const DepthwiseKernel& depthwise_portable() {
    static const DepthwiseKernel kernel = {convert_centered, multiply};
    return kernel;
}

}  // namespace zeropoint
