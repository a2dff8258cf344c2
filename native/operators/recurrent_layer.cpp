#include "operators/recurrent.h"

#include "kernels/float_gemm/float_gemm.h"
#include "kernels/half_gemm/half_gemm.h"
#include "kernels/registry.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace zeropoint {
namespace {

static_assert(kCellBlock == kPanel && kCellBlock == kHalfPanel && kCellBlock == kFloatPanel,
              "a gate of a block is one panel");

int64_t blocks_of(int64_t hidden) { return (hidden + kCellBlock - 1) / kCellBlock; }

// Row n of a matrix goes to the place of its gate in its block; places without a row have `empty`.
template <class T>
std::vector<T> in_blocks(const T* from, int64_t length, int64_t gates, int64_t hidden, T empty) {
    std::vector<T> to(static_cast<size_t>(blocks_of(hidden) * gates * kCellBlock * length), empty);
    if (from == nullptr) return to;
    for (int64_t gate = 0; gate < gates; ++gate)
        for (int64_t unit = 0; unit < hidden; ++unit) {
            const int64_t place = (unit / kCellBlock * gates + gate) * kCellBlock + unit % kCellBlock;
            std::copy_n(from + (gate * hidden + unit) * length, length, to.data() + place * length);
        }
    return to;
}

// Scales and zero points may be one for all rows.
template <class T>
std::vector<T> one_each(const T* from, int64_t count, int64_t rows) {
    std::vector<T> to(static_cast<size_t>(rows));
    for (int64_t i = 0; i < rows; ++i) to[static_cast<size_t>(i)] = from[count == 1 ? 0 : i];
    return to;
}

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument("recurrent: " + what); }

void require_count(int64_t count, int64_t rows, const char* what) {
    if (count != 1 && count != rows)
        refuse("there are " + std::to_string(count) + " weight " + what + " for " + std::to_string(rows) + " rows");
}

void require_valid(const RecurrentWeight& w, int64_t rows) {
    if (w.numbers != RecurrentNumbers::bytes) return;
    require_count(w.scales, rows, "scales");
    require_count(w.zero_points, rows, "zero_points");
    for (int64_t i = 0; i < w.scales; ++i)
        if (!std::isfinite(w.scale[i]) || w.scale[i] <= 0)
            refuse("every weight scale must be finite and positive, got " + std::to_string(w.scale[i]));
    const int32_t low = w.type == IntType::u8 ? 0 : -128;
    for (int64_t i = 0; i < w.zero_points; ++i)
        if (w.zero_point[i] < low || w.zero_point[i] > low + 255)
            refuse("a weight zero_point is " + std::to_string(w.zero_point[i]) + ", outside " + std::to_string(low) +
                   ".." + std::to_string(low + 255));
}

// 8-bit weights in blocks; rows that are not there are all zero.
struct BlockWeights {
    std::vector<uint8_t> data;
    std::vector<int32_t> zero_point;
    std::vector<float> scale;

    BlockWeights(const RecurrentWeight& w, int64_t gates, int64_t hidden, int64_t inputs) {
        const int64_t rows = gates * hidden;
        const std::vector<int32_t> zero = one_each(w.zero_point, w.zero_points, rows);
        const int32_t none = rows > 0 ? zero[0] : 0;
        zero_point = in_blocks(zero.data(), 1, gates, hidden, none);
        scale = in_blocks(one_each(w.scale, w.scales, rows).data(), 1, gates, hidden, 1.0f);
        data = in_blocks(static_cast<const uint8_t*>(w.data), inputs, gates, hidden, static_cast<uint8_t>(none));
    }
    WeightTensor tensor(IntType type) const {
        return {data.data(), type, zero_point.data(), static_cast<int64_t>(zero_point.size())};
    }
    // What a row of ones gives.
    std::vector<float> sums(IntType type, int64_t inputs) const {
        std::vector<float> to(scale.size());
        for (size_t n = 0; n < to.size(); ++n) {
            const uint8_t* row = data.data() + n * static_cast<size_t>(inputs);
            int64_t sum = -inputs * zero_point[n];
            for (int64_t k = 0; k < inputs; ++k) sum += type == IntType::u8 ? row[k] : static_cast<int8_t>(row[k]);
            to[n] = static_cast<float>(sum) * scale[n];
        }
        return to;
    }
};

// [panel][k][output channel of the panel]
template <class T>
AlignedBytes panels_of(const RecurrentWeight& w, int64_t gates, int64_t hidden, int64_t inputs) {
    const std::vector<T> rows = in_blocks(static_cast<const T*>(w.data), inputs, gates, hidden, T{});
    AlignedBytes panels(rows.size() * sizeof(T));
    T* to = reinterpret_cast<T*>(panels.data());
    for (int64_t p = 0; p < blocks_of(hidden) * gates; ++p)
        for (int64_t k = 0; k < inputs; ++k)
            for (int64_t n = 0; n < kHalfPanel; ++n)
                *to++ = rows[static_cast<size_t>((p * kHalfPanel + n) * inputs + k)];
    return panels;
}

}  // namespace

RecurrentLayer::RecurrentLayer(Cell cell, int64_t hidden, int64_t inputs, const RecurrentRanges& ranges,
                               const RecurrentWeight& input, const RecurrentWeight& recurrent)
    : cell_(cell),
      hidden_(hidden),
      inputs_(inputs),
      blocks_(blocks_of(hidden)),
      numbers_(input.numbers),
      ranges_(ranges) {
    if (input.numbers != recurrent.numbers) refuse("both matrices must be 8 bit, or both float16, or both float32");
    const int64_t gates = cell_gates(cell), outputs = blocks_ * gates * kCellBlock;
    require_valid(input, gates * hidden);
    require_valid(recurrent, gates * hidden);
    input_bias_ = in_blocks(input.bias, 1, gates, hidden, 0.0f);
    recurrent_bias_ = in_blocks(recurrent.bias, 1, gates, hidden, 0.0f);
    if (!in_bytes()) {
        const auto pack = numbers_ == RecurrentNumbers::halves ? panels_of<uint16_t> : panels_of<float>;
        input_panels_ = pack(input, gates, hidden, inputs);
        recurrent_panels_ = pack(recurrent, gates, hidden, hidden);
        return;
    }
    kernel_ = ranges.reduce_range ? &kernels().narrow_gemm() : &kernels().gemm();
    BlockWeights first(input, gates, hidden, inputs), second(recurrent, gates, hidden, hidden);
    input_ = std::make_unique<LinearPlan>(first.tensor(input.type), outputs, inputs, *kernel_);
    recurrent_ = pack_weights(*kernel_, second.tensor(recurrent.type), 0, outputs, 1, hidden, {{0}});
    if (by_rows()) {
        input_sums_ = first.sums(input.type, inputs);
        recurrent_sums_ = second.sums(recurrent.type, hidden);
        no_bias_.resize(static_cast<size_t>(outputs));
        no_sums_.resize(static_cast<size_t>(outputs));
    }
    input_scale_ = std::move(first.scale);
    recurrent_scale_ = std::move(second.scale);
}

}  // namespace zeropoint
