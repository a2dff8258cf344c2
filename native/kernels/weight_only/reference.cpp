// The specification of weight_only, one product at a time. It is never optimized.
#include "kernels/weight_only/blocks.h"
#include "kernels/simd/fused.h"

namespace zeropoint {
namespace {

int place(int n) { return n; }

float weight(const WeightOnlyArgs& a, int64_t panel, int64_t group, int64_t n, int64_t k) {
    const int64_t step = weight_step_bytes(a.format);
    const uint8_t* w = a.panels + panel * weight_steps(a.format, a.inputs) * step;
    if (a.format == WeightFormat::f16) {
        const uint8_t* at = w + k * step + 2 * n;
        return from_half(static_cast<uint16_t>(at[0] | at[1] << 8));
    }
    const int q = a.format == WeightFormat::u8 ? w[k * step + n] : w[k / 2 * step + n] >> (k % 2 * 4) & 15;
    return static_cast<float>(q) - a.zero_point[(panel * a.groups + group) * kWeightPanel + n];
}

void multiply(const WeightOnlyArgs& a, int64_t begin, int64_t end, float*) {
    for (int64_t row = 0; row < a.rows; ++row)
        for (int64_t n = begin * kWeightPanel; n < end * kWeightPanel && n < a.outputs; ++n) {
            const int64_t panel = n / kWeightPanel, place_in = n % kWeightPanel;
            float y = 0;
            for_each_block(a.inputs, a.group_size, [&](int64_t block, int64_t group, int64_t from, int64_t to) {
                float acc = 0;
                for (int64_t k = from; k < to; ++k)
                    acc = fused(a.x[row * a.x_stride + k], weight(a, panel, group, place_in, k), acc);
                const int64_t at = (panel * a.groups + group) * kWeightPanel + place_in;
                y = fused(a.scale != nullptr ? a.scale[at] : 1.0f, acc, y);
                if (a.shift != nullptr) y = fused(a.shift[at], a.sums[row * a.sums_stride + block], y);
            });
            finish(a, row, n, y);
        }
}

}  // namespace

const WeightOnlyKernel& weight_only_reference() {
    static const WeightOnlyKernel kernel = {place, multiply};
    return kernel;
}

}  // namespace zeropoint
