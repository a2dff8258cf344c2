#include "operators/residual_norm.h"

#include "cpu/machine.h"
#include "cpu/memory.h"
#include "cpu/threads.h"
#include "kernels/registry.h"
#include "operators/affine.h"
#include "operators/float_functions.h"
#include "operators/scratch.h"

#include <algorithm>
#include <vector>

namespace zeropoint {

void residual_norm(const ResidualNorm& n) {
    if (n.other == nullptr && n.bytes == nullptr)
        return float_layer_norm(n.x, n.y, n.rows, n.length, n.weight, n.bias, n.eps, n.centered);
    if (n.rows * n.length == 0) return;
    std::vector<float> ones, zeros;
    if (n.weight == nullptr) ones.assign(static_cast<size_t>(n.length), 1.0f);
    if (n.bias == nullptr) zeros.assign(static_cast<size_t>(n.length), 0.0f);
    const float *weight = n.weight != nullptr ? n.weight : ones.data(),
                *bias = n.bias != nullptr ? n.bias : zeros.data();
    if (n.y != nullptr) prepare_output(n.y, static_cast<size_t>(n.rows * n.length) * sizeof(float));
    const FloatLayerNormFn norm = kernels().float_layer_norm;
    const QuantizeFn quantize = kernels().quantize;
    const float inverse = n.bytes != nullptr ? inverse_scale(n.scale, RoundingVariant::split) : 1.0f;
    const float zero_point = static_cast<float>(n.zero_point);
    constexpr int64_t kElements = worth_elements(8);  // worth a thread
    struct Rows {};
    parallel_for(n.rows, std::max<int64_t>(1, kElements / n.length), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; row += ResidualNorm::kMostRows) {
            const int64_t rows = std::min(ResidualNorm::kMostRows, end - row), count = rows * n.length,
                          at = row * n.length;
            float* y = n.y != nullptr
                           ? n.y + at
                           : reinterpret_cast<float*>(scratch_of<Rows>(static_cast<size_t>(count) * sizeof(float)));
            norm({n.x + at, y, n.length, weight, bias, n.eps, n.other != nullptr ? n.other + at : nullptr, n.centered},
                 0, rows);
            if (n.bytes == nullptr) continue;
            QuantizeArgs q;
            q.x = y;
            q.y = static_cast<uint8_t*>(n.bytes) + at;
            q.dst = n.type;
            q.grid = {1, 1, count, 0, nullptr};
            q.inv = &inverse;
            q.zero_point = &zero_point;
            q.qmin = n.low;
            q.qmax = n.high;
            quantize(q, 0, count);
        }
    });
}

}  // namespace zeropoint
