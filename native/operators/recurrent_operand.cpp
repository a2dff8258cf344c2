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

void OperandRows::quantize(const float* x, uint8_t* q, int64_t length, int64_t first, int64_t count) const {
    const int64_t range = ranges_.per_row ? first : 0;
    QuantizeArgs a;
    a.x = x;
    a.y = q;
    a.dst = IntType::u8;
    a.grid = ranges_.per_row ? Grid{count, 1, length, 1, nullptr} : Grid{1, 1, count * length, 1, nullptr};
    a.inv = inverse_ + range;
    a.zero_point = zero_point_ + range;
    a.variant = RoundingVariant::fused;
    a.qmin = 0;
    a.qmax = ranges_.reduce_range ? kNarrowMost : 255;  // 127 or 255 before the zero point is rounded
    kernels().quantize(a, 0, count * length);
}

QuantizedInput quantized_input(const float* x, const SequenceRows& sequence, int64_t inputs,
                               const RecurrentRanges& ranges, bool alone) {
    const int64_t rows = sequence.all_rows(), elements = rows * inputs;
    uint8_t* q = scratch_of<InputMemory>(static_cast<size_t>(elements));
    float* memory = reinterpret_cast<float*>(
        scratch_of<InputRowMemory>(static_cast<size_t>((OperandRows::kFloats + 2) * rows) * sizeof(float)));
    OperandRows parameters(memory, rows, ranges);
    float *low = memory + OperandRows::kFloats * rows, *high = low + rows;
    const auto set_ranges = [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            require_finite(low[i], high[i]);
            parameters.set_range(i, low[i], high[i]);
        }
    };
    // `count` rows from `first` on, which begin at `from`.
    const auto quantize = [&](const float* from, int64_t first, int64_t count) {
        if (ranges.per_row) {
            constexpr float kInf = std::numeric_limits<float>::infinity();
            std::fill_n(low + first, count, inputs == 0 ? 0 : kInf);
            std::fill_n(high + first, count, inputs == 0 ? 0 : -kInf);
            kernels().minmax({from, {count, 1, inputs, 1, nullptr}, low + first, high + first}, 0, count * inputs);
            set_ranges(first, first + count);
        }
        parameters.quantize(from, q + first * inputs, inputs, first, count);
    };
    if (alone) {
        for (int64_t t = 0; t < sequence.steps(); ++t)
            quantize(x + sequence.place(t) * inputs, sequence.offset(t), sequence.rows(t));
    } else {
        const float* from = x + sequence.place(0) * inputs;
        if (!ranges.per_row) {
            low[0] = high[0] = 0;
            if (elements > 0) minmax(from, {1, 1, elements, 0, nullptr}, 1, low, high);
            set_ranges(0, 1);
        }
        prepare_output(q, static_cast<size_t>(elements));
        const int64_t grain = std::max<int64_t>(1, worth_elements(2) / std::max<int64_t>(1, inputs));
        parallel_for(rows, grain,
                     [&](int64_t begin, int64_t end) { quantize(from + begin * inputs, begin, end - begin); });
    }
    return {q, parameters.scale(), parameters.zero_point()};
}

}  // namespace zeropoint
