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
    if (n.other == nullptr && n.bytes == nullptr && n.x_bytes == nullptr)
        return float_layer_norm(n.x, n.y, n.rows, n.length, n.weight, n.bias, n.eps, n.centered);
    if (n.rows * n.length == 0) return;
    std::vector<float> ones, zeros;
    if (n.weight == nullptr) ones.assign(static_cast<size_t>(n.length), 1.0f);
    if (n.bias == nullptr) zeros.assign(static_cast<size_t>(n.length), 0.0f);
    const float *weight = n.weight != nullptr ? n.weight : ones.data(),
                *bias = n.bias != nullptr ? n.bias : zeros.data();
    if (n.y != nullptr) prepare_output(n.y, static_cast<size_t>(n.rows * n.length) * sizeof(float));
    if (n.sum != nullptr) prepare_output(n.sum, static_cast<size_t>(n.rows * n.length) * sizeof(float));
    const FloatLayerNormFn norm = kernels().float_layer_norm;
    const DequantizeFn dequantize = kernels().dequantize;
    const QuantizeFn quantize = kernels().quantize;
    const float inverse = n.bytes != nullptr ? inverse_scale(n.scale, RoundingVariant::split) : 1.0f;
    const float zero_point = static_cast<float>(n.zero_point);
    constexpr int64_t kElements = worth_elements(8);  // worth a thread
    struct Rows {};
    struct Floats {};
    parallel_for(n.rows, std::max<int64_t>(1, kElements / n.length), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; row += ResidualNorm::kMostRows) {
            const int64_t rows = std::min(ResidualNorm::kMostRows, end - row), count = rows * n.length,
                          at = row * n.length;
            float* y = n.y != nullptr
                           ? n.y + at
                           : reinterpret_cast<float*>(scratch_of<Rows>(static_cast<size_t>(count) * sizeof(float)));
            const float* x = n.x != nullptr ? n.x + at : nullptr;
            if (n.x_bytes != nullptr) {
                DequantizeArgs d;
                d.q = static_cast<const uint8_t*>(n.x_bytes) + at;
                d.src = n.x_type;
                d.y = reinterpret_cast<float*>(scratch_of<Floats>(static_cast<size_t>(count) * sizeof(float)));
                d.grid = {1, 1, count, 0, nullptr};
                d.scale = &n.x_scale;
                d.zero_point = &n.x_zero_point;
                dequantize(d, 0, count);
                x = d.y;
            }
            norm({x, y, n.length, weight, bias, n.eps, n.other != nullptr ? n.other + at : nullptr, n.centered,
                  n.sum != nullptr ? n.sum + at : nullptr},
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
