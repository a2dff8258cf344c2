#include "kernels/group_gemm/group_gemm.h"

#include "kernels/half.h"
#include "kernels/simd/fused.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace zeropoint {
namespace {

void prepare(const float* x, int64_t t, int64_t groups, int64_t group, int8_t* q, float* scale, int32_t* sum) {
    for (int64_t r = 0; r < t; ++r)
        for (int64_t g = 0; g < groups; ++g) {
            const float* from = x + (r * groups + g) * group;
            float most = 0;
            bool finite = true;
            for (int64_t k = 0; k < group; ++k) {
                finite = finite && std::isfinite(from[k]);
                most = std::max(most, std::abs(from[k]));
            }
            const bool zero = !finite || most < kLeastGroup;
            int32_t total = 0;
            for (int64_t k = 0; k < group; ++k) {
                const float value = zero ? 0.0f : std::nearbyint(from[k] * (127.0f / most));
                const int64_t at = g * group + k;
                q[(at / 4 * t + r) * 4 + at % 4] = static_cast<int8_t>(value);
                total += static_cast<int32_t>(value);
            }
            scale[g * t + r] = !finite ? std::numeric_limits<float>::quiet_NaN() : most * (1.0f / 127.0f);
            sum[g * t + r] = total;
        }
}

int32_t weight(const GroupGemmArgs& a, int64_t n, int64_t k) {
    const uint8_t* unit =
        a.weights + (n / kGroupPanel * (a.inputs() / kGroupUnit) + k / kGroupUnit) * group_unit_bytes(a.bits);
    const int64_t at = k % kGroupUnit, o = n % kGroupPanel;
    if (a.bits == 8) return unit[at / 4 * 64 + o * 4 + at % 4];
    return unit[at / 8 * 64 + o * 4 + at % 4] >> (at / 4 % 2 * 4) & 15;
}

void multiply(const GroupGemmArgs& a, int64_t begin, int64_t end) {
    const int32_t zero = a.minimum != nullptr ? 0 : a.bits == 8 ? 128 : 8;
    for (int64_t row = 0; row < a.rows; ++row) {
        const int64_t first = row / kGroupTile * kGroupTile, t = std::min(kGroupTile, a.rows - first), r = row - first;
        for (int64_t n = begin * kGroupPanel; n < std::min(end * kGroupPanel, a.outputs); ++n) {
            float y = 0;
            for (int64_t g = 0; g < a.groups; ++g) {
                int32_t p = 0;
                for (int64_t k = g * a.group; k < (g + 1) * a.group; ++k)
                    p += (weight(a, n, k) - zero) * a.x.q[first * a.inputs() + (k / 4 * t + r) * 4 + k % 4];
                const int64_t at = first * a.groups + g * t + r;
                const int64_t parameter = (n / kGroupPanel * a.groups + g) * kGroupPanel + n % kGroupPanel;
                y = fused(static_cast<float>(p) * a.x.scale[at], from_half(a.scale[parameter]), y);
                if (a.minimum != nullptr)
                    y = fused(a.x.scale[at] * static_cast<float>(a.x.sum[at]), from_half(a.minimum[parameter]), y);
            }
            if (a.bias != nullptr) y += a.bias[n];
            if (a.residual != nullptr) y += a.residual[row * a.outputs + n];
            a.y[row * a.outputs + n] = y;
        }
    }
}

}  // namespace

const GroupGemmKernel& group_gemm_reference() {
    static const GroupGemmKernel kernel{&prepare, &multiply};
    return kernel;
}

}  // namespace zeropoint
