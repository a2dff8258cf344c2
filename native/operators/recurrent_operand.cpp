#include "operators/recurrent_operand.h"

#include "cpu/machine.h"
#include "cpu/memory.h"
#include "cpu/threads.h"
#include "kernels/registry.h"
#include "operators/qparams.h"
#include "operators/ranges.h"
#include "operators/scratch.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

namespace zeropoint {
namespace {

struct InputMemory;
struct InputRowMemory;

void require_finite(float low, float high) {
    if (std::isfinite(low) && std::isfinite(high)) return;
    throw std::invalid_argument("recurrent: the input must be finite to be quantized, got a range of [" +
                                std::to_string(low) + ", " + std::to_string(high) + "]");
}

}  // namespace

void OperandRows::set_range(int64_t i, float low, float high) {
    const QParams p = qparams_of_range(low, high, 0, ranges_.reduce_range ? 127 : 255, false, false);
    scale_[i] = static_cast<float>(p.scale);
    zero_point_[i] = static_cast<float>(p.zero_point);
    inverse_[i] = 1.0f / scale_[i];
}

void OperandRows::quantize(const float* x, uint8_t* q, int64_t length, int64_t begin, int64_t end) const {
    QuantizeArgs a;
    a.x = x;
    a.y = q;
    a.dst = IntType::u8;
    a.grid = {ranges(), 1, rows_ / ranges() * length, 1, nullptr};
    a.inv = inverse_;
    a.zero_point = zero_point_;
    a.spelling = Spelling::fused;
    a.qmin = 0;
    a.qmax = ranges_.reduce_range ? kNarrowMost : 255;  // 127 or 255 before the zero point is rounded
    kernels().quantize(a, begin * length, end * length);
}

QuantizedInput quantized_input(const float* x, int64_t rows, int64_t inputs, const RecurrentRanges& ranges) {
    const int64_t elements = rows * inputs;
    uint8_t* q = scratch_of<InputMemory>(static_cast<size_t>(elements));
    float* memory = reinterpret_cast<float*>(
        scratch_of<InputRowMemory>(static_cast<size_t>((OperandRows::kFloats + 2) * rows) * sizeof(float)));
    OperandRows parameters(memory, rows, ranges);
    float *low = memory + OperandRows::kFloats * rows, *high = low + rows;
    if (!ranges.per_row || elements == 0) {
        low[0] = high[0] = 0;
        if (elements > 0) minmax(x, {1, 1, elements, 0, nullptr}, 1, low, high);
        require_finite(low[0], high[0]);
        for (int64_t i = 0; i < parameters.ranges(); ++i) parameters.set_range(i, low[0], high[0]);
    }
    prepare_output(q, static_cast<size_t>(elements));
    const int64_t grain = std::max<int64_t>(1, worth_elements(2) / std::max<int64_t>(1, inputs));
    parallel_for(rows, grain, [&](int64_t begin, int64_t end) {
        if (ranges.per_row && elements > 0) {
            constexpr float kInf = std::numeric_limits<float>::infinity();
            std::fill(low + begin, low + end, kInf);
            std::fill(high + begin, high + end, -kInf);
            kernels().minmax({x, {rows, 1, inputs, 1, nullptr}, low, high}, begin * inputs, end * inputs);
            for (int64_t r = begin; r < end; ++r) {
                require_finite(low[r], high[r]);
                parameters.set_range(r, low[r], high[r]);
            }
        }
        parameters.quantize(x, q, inputs, begin, end);
    });
    return {q, parameters.scale(), parameters.zero_point()};
}

}  // namespace zeropoint
