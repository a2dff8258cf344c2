#include "kernels/group_gemm/prepare.h"
#include "kernels/half.h"
#include "kernels/simd/fused.h"

#include <algorithm>
#include <cmath>

namespace zeropoint {
namespace {

// 32 inputs of a panel in the order of lines of 8-bit weights.
inline void unpack_unit(const uint8_t* from, int bits, uint8_t* to) {
    if (bits == 8) {
        std::memcpy(to, from, 512);
        return;
    }
    for (int line = 0; line < 4; ++line)
        for (int i = 0; i < 64; ++i) {
            to[line * 128 + i] = from[line * 64 + i] & 15;
            to[line * 128 + 64 + i] = static_cast<uint8_t>(from[line * 64 + i] >> 4);
        }
}

inline void add_unit(const uint8_t* w, const int8_t* q, int64_t t, int32_t* sums) {
    for (int64_t line = 0; line < 8; ++line)
        for (int64_t n = 0; n < kGroupPanel; ++n)
            for (int64_t i = 0; i < 4; ++i)
                sums[n] += static_cast<int32_t>(w[line * 64 + n * 4 + i]) * static_cast<int32_t>(q[line * t * 4 + i]);
}

void multiply(const GroupGemmArgs& a, int64_t begin, int64_t end) {
    const int32_t zero = a.minimum != nullptr ? 0 : a.bits == 8 ? 128 : 8;
    const int64_t units = a.group / kGroupUnit, bytes = group_unit_bytes(a.bits);
    for (int64_t panel = begin; panel < end; ++panel)
        for (int64_t first = 0; first < a.rows; first += kGroupTile) {
            const int64_t t = std::min(kGroupTile, a.rows - first);
            float y[kGroupTile][kGroupPanel] = {};
            for (int64_t g = 0; g < a.groups; ++g) {
                int32_t sums[kGroupTile][kGroupPanel];
                const int64_t at = first * a.groups + g * t;
                for (int64_t r = 0; r < t; ++r) std::fill_n(sums[r], kGroupPanel, -zero * a.x.sum[at + r]);
                for (int64_t u = g * units; u < (g + 1) * units; ++u) {
                    uint8_t w[512];
                    unpack_unit(a.weights + (panel * a.groups * units + u) * bytes, a.bits, w);
                    for (int64_t r = 0; r < t; ++r)
                        add_unit(w, a.x.q + first * a.inputs() + (u * 8 * t + r) * 4, t, sums[r]);
                }
                const int64_t parameter = (panel * a.groups + g) * kGroupPanel;
                for (int64_t r = 0; r < t; ++r)
                    for (int64_t n = 0; n < kGroupPanel; ++n) {
                        const float scale = a.x.scale[at + r];
                        y[r][n] =
                            fused(static_cast<float>(sums[r][n]) * scale, from_half(a.scale[parameter + n]), y[r][n]);
                        if (a.minimum != nullptr)
                            y[r][n] = fused(scale * static_cast<float>(a.x.sum[at + r]),
                                            from_half(a.minimum[parameter + n]), y[r][n]);
                    }
            }
            const int64_t from = panel * kGroupPanel, to = std::min(from + kGroupPanel, a.outputs);
            for (int64_t r = 0; r < t; ++r)
                for (int64_t n = from; n < to; ++n) {
                    float value = y[r][n - from];
                    const int64_t place = (first + r) * a.outputs + n;
                    if (a.bias != nullptr) value += a.bias[n];
                    if (a.residual != nullptr) value += a.residual[place];
                    a.y[place] = value;
                }
        }
}

}  // namespace

const GroupGemmKernel& group_gemm_portable() {
    static const GroupGemmKernel kernel{&prepare_group_rows, &multiply};
    return kernel;
}

}  // namespace zeropoint
