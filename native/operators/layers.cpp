#include "kernels/simd/fused.h"
#include "operators/layers.h"

#include "cpu/threads.h"
#include "operators/affine.h"
#include "operators/qparams.h"
#include "operators/ranges.h"
#include "operators/scratch.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <stdexcept>
#include <string>

namespace zeropoint {
namespace {

struct ActivationMemory;
struct RowScaleMemory;
struct ColumnMemory;
struct ColumnScaleMemory;

void require_scale(const char* operation, const char* name, float scale) {
    if (!(std::isfinite(scale) && scale > 0))
        throw std::invalid_argument(std::string(operation) + ": " + name + " must be finite and positive, got " +
                                    std::to_string(scale));
}

MatmulOutput output_of(const LayerOutput& y, const Rescaling::Arrays& arrays) {
    if (y.z != nullptr) require_scale("layer", "the scale of what is added", y.z_scale);
    MatmulOutput out;
    static_cast<Output&>(out) = y;
    out.multiplier = arrays.multiplier;
    out.multipliers = arrays.multipliers;
    out.float_bias = arrays.bias;
    out.bias = arrays.int_bias;
    out.after = arrays.after;
    out.first = arrays.first;
    out.zero_point_first = arrays.zero_point_first;
    out.kept = arrays.kept;
    out.z_multiplier = y.z_scale / y.scale;
    return out;
}

// Rounded; what is beyond int32 at its ends.
int32_t to_int32(float v) {
    constexpr float kLow = -2147483648.0f, kHigh = 2147483520.0f;  // the largest float32 in int32
    v = std::nearbyintf(v);
    return static_cast<int32_t>(v < kLow ? kLow : v > kHigh ? kHigh : v);
}

bool to_bytes(const LayerOutput& y) { return y.type != OutputType::f32 && y.function == nullptr; }

// x as u8 with one scale from its own range, in memory of this thread.
LayerInput quantized_by_range(const char* operation, const float* x, int64_t elements, bool reduce_range) {
    float low = 0, high = 0;
    if (elements > 0) minmax(x, {1, 1, elements, 0, nullptr}, 1, &low, &high);
    if (!std::isfinite(low) || !std::isfinite(high))
        throw std::invalid_argument(std::string(operation) +
                                    ": the input must be finite to be quantized, got a range of [" +
                                    std::to_string(low) + ", " + std::to_string(high) + "]");
    const QParams p = qparams_of_range(low, high, 0, reduce_range ? 127 : 255, false, false);
    uint8_t* q = scratch_of<ActivationMemory>(static_cast<size_t>(elements));
    quantize_tensor(x, q, IntType::u8, elements, p.scale, static_cast<double>(p.zero_point), RoundingVariant::fused, 0,
                    255);
    return {q, IntType::u8, static_cast<float>(p.scale), static_cast<int32_t>(p.zero_point)};
}

// Each row as u8 around 128 by its own range; with `upward`, rows without negative values from 0 up, if all are so.
template <class Bytes, class Scales>
DynamicRows rows_by_range(const char* operation, const float* x, int64_t rows, int64_t columns, bool upward) {
    uint8_t* q = scratch_of<Bytes>(static_cast<size_t>(rows * columns));
    float* scale = reinterpret_cast<float*>(scratch_of<Scales>(static_cast<size_t>(3 * rows) * sizeof(float)));
    float *high = scale + rows, *middle = high + rows;
    minmax(x, {rows, 1, columns, 1, nullptr}, rows, scale, high);
    upward = upward && std::all_of(scale, scale + rows, [](float low) { return low >= 0; });
    const int32_t zero = upward ? 0 : 128, steps = upward ? 255 : 127;
    std::fill(middle, middle + rows, static_cast<float>(zero));
    for (int64_t r = 0; r < rows; ++r) {
        const float most = std::max(std::fabs(scale[r]), std::fabs(high[r]));
        if (!std::isfinite(most))
            throw std::invalid_argument(std::string(operation) + ": the input must be finite to be quantized, row " +
                                        std::to_string(r) + " is not");
        scale[r] = std::max(most / static_cast<float>(steps), std::numeric_limits<float>::epsilon());
    }
    quantize(x, q, IntType::u8, {rows, 1, columns, 1, nullptr}, {scale, ScalarType::f32, rows},
             {middle, ScalarType::f32, rows}, RoundingVariant::split, std::max(zero - steps, 0), zero + steps);
    return {{q, IntType::u8, 1.0f, zero}, rows, scale};
}

}  // namespace

bool is_narrow(const uint8_t* x, int64_t n) {
    constexpr int64_t kAtOnce = 4096, kPart = 1 << 18;
    std::atomic<bool> narrow{true};
    parallel_for((n + kPart - 1) / kPart, 1, [&](int64_t begin, int64_t end) {
        const int64_t last = std::min(n, end * kPart);
        for (int64_t at = begin * kPart; at < last && narrow.load(std::memory_order_relaxed); at += kAtOnce) {
            const int64_t count = std::min(kAtOnce, last - at);
            uint8_t most = 0;
            for (int64_t i = 0; i < count; ++i) most = std::max(most, x[at + i]);
            if (most > kNarrowMost) narrow.store(false, std::memory_order_relaxed);
        }
    });
    return narrow;
}

Rescaling::Rescaling(const char* operation, const float* scale, int64_t scales, const float* bias, int64_t n,
                     Rounding rounding)
    : operation_(operation),
      scale_(scale, scale + scales),
      outputs_(n),
      rounding_(rounding) {
    if (scales != 1 && scales != n)
        throw std::invalid_argument(std::string(operation) + ": there are " + std::to_string(scales) +
                                    " weight scales for " + std::to_string(n) + " output channels");
    for (const float s : scale_) require_scale(operation, "every weight scale", s);
    if (bias != nullptr) bias_.assign(bias, bias + n);
    // Without a bias, FBGEMM's product is zeropoint's.
    if (bias_.empty() && rounding_ == Rounding::fbgemm) rounding_ = Rounding::zeropoint;
}

void Rescaling::fill(const Key& key, Values& to) const {
    require_scale(operation_, "the input's scale", key.x_scale);
    require_scale(operation_, "the output's scale", key.y_scale);
    to.multiplier.clear();
    to.bias.clear();
    to.after.clear();
    to.int_bias.clear();
    to.first = 1;
    to.zero_point_first = false;
    const auto product = [&](size_t i) { return key.x_scale * scale_[scale_.size() == 1 ? 0 : i]; };
    const auto pad = [&] { to.after.resize(to.after.size() + kPanel); };
    switch (key.to_bytes ? rounding_ : Rounding::zeropoint) {
        case Rounding::zeropoint:
            for (size_t i = 0; i < scale_.size(); ++i) to.multiplier.push_back(product(i) / key.y_scale);
            for (const float b : bias_) to.bias.push_back(b / key.y_scale);
            break;
        case Rounding::fbgemm:
            to.multiplier.push_back(1);
            for (size_t i = 0; i < bias_.size(); ++i) {
                const float s = product(i), inverse = 1 / s;
                if (scale_.size() == 1) {
                    // fma(bias, 1 / s, acc): a whole number, and the rest with more digits than a float32 has for both.
                    const double exact = double{bias_[i]} * double{inverse};
                    to.int_bias.push_back(to_int32(static_cast<float>(exact)));
                    to.bias.push_back(static_cast<float>(exact - to.int_bias.back()));
                } else {
                    to.bias.push_back(bias_[i] / s);
                }
                to.after.push_back(s / key.y_scale);
            }
            pad();
            break;
        case Rounding::qnnpack:
            for (size_t i = 0; i < scale_.size(); ++i) to.multiplier.push_back(product(i) * (1 / key.y_scale));
            for (size_t i = 0; i < bias_.size(); ++i) {
                const float s = product(i), inverse = 1 / s;
                to.int_bias.push_back(to_int32(scale_.size() == 1 ? bias_[i] * inverse : bias_[i] / s));
            }
            break;
        case Rounding::onednn:
            to.first = 1 / (1 / key.x_scale);
            to.zero_point_first = true;
            to.multiplier = scale_;
            to.bias = bias_;
            to.after.assign(static_cast<size_t>(outputs_), 1 / key.y_scale);
            pad();
            break;
    }
}

Rescaling::Arrays Rescaling::placed(const Values& values, bool kept) const {
    Arrays r;
    const auto data = [](const auto& v) { return v.empty() ? nullptr : v.data(); };
    r.multiplier = data(values.multiplier);
    r.multipliers = static_cast<int64_t>(values.multiplier.size());
    r.bias = data(values.bias);
    r.kept = kept;
    r.int_bias = data(values.int_bias);
    r.after = data(values.after);
    r.first = values.first;
    r.zero_point_first = values.zero_point_first;
    return r;
}

Rescaling::Arrays Rescaling::arrays(float x_scale, float y_scale, bool to_bytes) const {
    const Key key{x_scale, y_scale, to_bytes};
    const Values* kept = kept_.get(key, [&] {
        Values made;
        fill(key, made);
        return made;
    });
    if (kept != nullptr) return placed(*kept, true);
    thread_local Values t_values;
    fill(key, t_values);
    return placed(t_values, false);
}

// y = fma(acc, s, bias): first the sums as float32, then the rest in their place.
void LinearLayer::run_fused(const LinearPlan& plan, const LayerInput& x, int64_t rows, const LayerOutput& y) const {
    LayerOutput sums;
    sums.y = y.y;
    sums.type = OutputType::f32;
    const float one = 1;
    plan.run({x.x, x.type, x.zero_point}, rows, output_of(sums, {&one, nullptr, 1}));
    const Rescaling::Arrays a = rescaling_.arrays(x.scale, y.scale, false);
    const int64_t n = outputs();
    parallel_for(rows, std::max<int64_t>(1, 16384 / std::max<int64_t>(n, 1)), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
            float* row = static_cast<float*>(y.y) + r * n;
            for (int64_t i = 0; i < n; ++i) {
                float v = fused(row[i], a.multiplier[a.multipliers == 1 ? 0 : i], a.bias[i]);
                v = v < 0 ? v * y.slope : v;
                row[i] = v < y.low ? y.low : v > y.high ? y.high : v;
            }
            if (y.function != nullptr) kernels().float_function({y.function->function, row, row}, 0, n);
        }
    });
}

void LinearLayer::run(const LayerInput& x, int64_t rows, const LayerOutput& y) const {
    const LinearPlan& plan = plans_.for_input(x, rows * inputs());
    if (y.type == OutputType::f32 && rescaling_.fuses_bias()) return run_fused(plan, x, rows, y);
    const Rescaling::Arrays arrays = rescaling_.arrays(x.scale, y.scale, to_bytes(y));
    plan.run({x.x, x.type, x.zero_point}, rows, output_of(y, arrays));
}

DynamicRows quantize_rows(const char* operation, const float* x, int64_t rows, int64_t columns, bool reduce_range,
                          bool per_row) {
    if (!per_row) return {quantized_by_range(operation, x, rows * columns, reduce_range), rows};
    return rows_by_range<ActivationMemory, RowScaleMemory>(operation, x, rows, columns, false);
}

void LinearLayer::run(const DynamicRows& x, float* y, bool relu, const FloatStage* function) const {
    const int64_t n = outputs(), rows = x.rows;
    if (rows == 0) return;
    LayerOutput out;
    out.y = y;
    out.type = OutputType::f32;
    if (x.scale == nullptr) {
        if (relu) out.low = 0;
        out.function = function;
        run(x.input, rows, out);
        return;
    }
    // Each row has its own scale: multiply without one, and scale the rows of the result.
    const Rescaling::Arrays arrays = rescaling_.arrays(1.0f, 1.0f, false);
    MatmulOutput plain = output_of(out, arrays);
    plain.float_bias = nullptr;
    plans_.any().run({x.input.x, x.input.type, x.input.zero_point}, rows, plain);
    const float* bias = arrays.bias;
    const float least = relu ? 0.0f : -std::numeric_limits<float>::infinity();
    parallel_for(rows, std::max<int64_t>(1, 16384 / std::max<int64_t>(n, 1)), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
            float* row = y + r * n;
            for (int64_t i = 0; i < n; ++i) {
                const float v = row[i] * x.scale[r] + (bias != nullptr ? bias[i] : 0.0f);
                row[i] = v < least ? least : v;
            }
            if (function != nullptr) kernels().float_function({function->function, row, row}, 0, n);
        }
    });
}

void ConvLayer::run(const LayerInput& x, int64_t images, const Size3& in, bool channels_first,
                    const LayerOutput& y) const {
    const Rescaling::Arrays arrays = rescaling_.arrays(x.scale, y.scale, to_bytes(y));
    const ConvPlan& plan = plans_.for_input(x, images * in[0] * in[1] * in[2] * shape().in_channels);
    plan.run({x.x, x.type, x.zero_point}, images, in, output_of(y, arrays), channels_first);
}

void ConvLayer::run_dynamic(const float* x, int64_t images, const Size3& in, bool channels_first, float* y,
                            bool reduce_range) const {
    LayerOutput out;
    out.y = y;
    out.type = OutputType::f32;
    const int64_t elements = images * in[0] * in[1] * in[2] * shape().in_channels;
    run(quantized_by_range("conv_dynamic", x, elements, reduce_range), images, in, channels_first, out);
}

namespace {

// Weights packed for this thread; those of its last call leave their memory to them.
const LinearPlan& packed_again(const WeightTensor& weights, int64_t columns, int64_t depth) {
    thread_local std::unique_ptr<LinearPlan> plan;
    if (plan == nullptr || &plan->kernel() != &kernels().gemm())
        plan = std::make_unique<LinearPlan>(weights, columns, depth);
    else
        plan->pack(weights, columns, depth);
    return *plan;
}

// one(b) for every b, on several threads where each alone is small.
template <class One>
void for_matrices(int64_t batches, int64_t macs, const One& one) {
    if (batches == 0) return;
    one(0);  // whatever is wrong with the parameters is said here, on the caller's thread
    const bool each_is_large = macs > (int64_t{1} << 22);
    if (each_is_large) {
        for (int64_t b = 1; b < batches; ++b) one(b);
    } else {
        parallel_for(batches - 1, 1, [&](int64_t begin, int64_t end) {
            for (int64_t b = begin; b < end; ++b) one(b + 1);
        });
    }
}

}  // namespace

void batched_matmul(const LayerInput& a, const LayerInput& w, int64_t batches, int64_t rows, int64_t columns,
                    int64_t depth, const LayerOutput& y) {
    const auto one = [&](int64_t b) {
        const LinearPlan& plan = packed_again(
            {static_cast<const uint8_t*>(w.x) + b * columns * depth, w.type, &w.zero_point, 1}, columns, depth);
        LayerInput from = a;
        from.x = static_cast<const uint8_t*>(a.x) + b * rows * depth;
        LayerOutput to = y;
        const int64_t at = b * rows * columns;
        if (y.type == OutputType::f32)
            to.y = static_cast<float*>(y.y) + at;
        else
            to.y = static_cast<uint8_t*>(y.y) + at;
        matmul(from, plan, w.scale, rows, to);
    };
    for_matrices(batches, rows * columns * depth, one);
}

void batched_matmul_dynamic(const float* a, const float* w, int64_t batches, int64_t rows, int64_t columns,
                            int64_t depth, float* y) {
    const DynamicRows left =
        rows_by_range<ActivationMemory, RowScaleMemory>("matmul_dynamic", a, batches * rows, depth, true);
    const DynamicRows right =
        rows_by_range<ColumnMemory, ColumnScaleMemory>("matmul_dynamic", w, batches * columns, depth, false);
    for_matrices(batches, rows * columns * depth, [&](int64_t b) {
        const LinearPlan& plan = packed_again(
            {static_cast<const uint8_t*>(right.input.x) + b * columns * depth, IntType::u8, &right.input.zero_point, 1},
            columns, depth);
        MatmulOutput out;
        out.type = OutputType::f32;
        out.y = y + b * rows * columns;
        out.multiplier = right.scale + b * columns;
        out.multipliers = columns;
        plan.run({static_cast<const uint8_t*>(left.input.x) + b * rows * depth, IntType::u8, left.input.zero_point},
                 rows, out);
        for (int64_t r = 0; r < rows; ++r) {
            float* row = y + (b * rows + r) * columns;
            for (int64_t n = 0; n < columns; ++n) row[n] *= left.scale[b * rows + r];
        }
    });
}

double batched_matmul_dynamic_bytes(int64_t batches, int64_t rows, int64_t columns, int64_t depth) {
    constexpr double kScales = 3 * sizeof(float);
    return static_cast<double>(batches) * static_cast<double>(rows + columns) * (static_cast<double>(depth) + kScales);
}

void matmul(const LayerInput& a, const LinearPlan& w, float w_scale, int64_t rows, const LayerOutput& y) {
    require_scale("matmul", "the first scale", a.scale);
    require_scale("matmul", "the second scale", w_scale);
    require_scale("matmul", "the output's scale", y.scale);
    const float multiplier = a.scale * w_scale / y.scale;
    Rescaling::Arrays arrays;
    arrays.multiplier = &multiplier;
    arrays.multipliers = 1;
    w.run({a.x, a.type, a.zero_point}, rows, output_of(y, arrays));
}

double batched_matmul_scratch(int64_t columns, int64_t depth) {
    const auto up = [](int64_t n, int64_t multiple) {
        return static_cast<double>((n + multiple - 1) / multiple * multiple);
    };
    constexpr double kChannel = 20;  // sums, zero points and the arrays of an epilogue
    const double packed = up(columns, kPanel) * (up(depth, 64) + kChannel);
    return packed + LinearPlan::operand_bytes(depth);
}

}  // namespace zeropoint
