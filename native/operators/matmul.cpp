#include "operators/matmul.h"

#include "cpu/threads.h"
#include "kernels/wrap.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace zeropoint {
namespace {

// Stored weights are s8: u8 minus 128.
int32_t shift_of(IntType type) { return type == IntType::u8 ? 128 : 0; }

const char* type_name(IntType type) { return type == IntType::u8 ? "u8" : type == IntType::s8 ? "s8" : "other"; }

void require(bool ok, const char* operation, const std::string& what) {
    if (!ok) throw std::invalid_argument(std::string(operation) + ": " + what);
}

void require_zero_point(const char* operation, const char* whose, IntType type, int32_t zero_point) {
    require(type == IntType::u8 || type == IntType::s8, operation, std::string(whose) + " must be u8 or s8");
    const int32_t low = type == IntType::u8 ? 0 : -128, high = type == IntType::u8 ? 255 : 127;
    require(zero_point >= low && zero_point <= high, operation,
            std::string("the zero_point of ") + whose + " is " + std::to_string(zero_point) + ", outside " +
                type_name(type));
}

int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

}  // namespace

PackedWeights pack_weights(const GemmKernel& kernel, const WeightTensor& w, int64_t first, int64_t n,
                           int64_t stored_taps, int64_t channels, const std::vector<std::vector<int64_t>>& taps) {
    PackedWeights p;
    p.n = n;
    p.tap_count = static_cast<int64_t>(taps.size());
    const int64_t parts = taps.empty() ? 0 : static_cast<int64_t>(taps[0].size());
    p.channels = parts * channels;
    const int64_t together = kernel.layout.together, padded = kernel.layout.padded(p.channels);
    const int64_t all = p.panel_count() * kPanel, panel_size = p.tap_count * padded * kPanel;
    p.panels = AlignedBytes(static_cast<size_t>(p.panel_count() * panel_size));
    p.sums.assign(static_cast<size_t>(all), 0);
    std::vector<int32_t> zero_point(static_cast<size_t>(all), 0);
    bool any = false;
    const int32_t shift = shift_of(w.type);
    for (int64_t i = 0; i < n; ++i) {
        const int32_t plain = w.zero_points == 0 ? 0 : w.zero_point[w.zero_points == 1 ? 0 : first + i];
        zero_point[static_cast<size_t>(i)] = plain - shift;
        any = any || plain != shift;
    }
    int8_t* to = reinterpret_cast<int8_t*>(p.panels.data());
    const uint8_t flip = w.type == IntType::u8 ? 0x80 : 0;
    for (int64_t i = 0; i < n; ++i) {
        const uint8_t* from = static_cast<const uint8_t*>(w.data) + (first + i) * stored_taps * channels;
        const int32_t padding = kernel.operand == Operand::centered ? zero_point[static_cast<size_t>(i)] : 0;
        int64_t sum = 0;
        for (int64_t t = 0; t < p.tap_count; ++t) {
            int8_t* tap = to + i / kPanel * panel_size + t * padded * kPanel;
            for (int64_t c = 0; c < padded; ++c) {
                int32_t value = padding;
                if (c < p.channels) {
                    const int64_t source = taps[static_cast<size_t>(t)][static_cast<size_t>(c / channels)];
                    value = static_cast<int8_t>(from[source * channels + c % channels] ^ flip);
                    sum += value;
                }
                tap[(c / together * kPanel + i % kPanel) * together + c % together] = static_cast<int8_t>(value);
            }
        }
        p.sums[static_cast<size_t>(i)] = low32(sum);
    }
    if (any) p.zero_point = std::move(zero_point);
    return p;
}

size_t fold_bytes(const PackedWeights& w) { return static_cast<size_t>(w.panel_count() * kPanel) * 12; }

Epilogue fold(const GemmKernel& kernel, const PackedWeights& w, const Activation& activation, const MatmulOutput& out,
              int64_t first, uint8_t* memory) {
    const int64_t all = w.panel_count() * kPanel;
    int32_t* bias = reinterpret_cast<int32_t*>(memory);
    float* multiplier = reinterpret_cast<float*>(bias + all);
    float* float_bias = multiplier + all;
    const bool shifted = kernel.operand == Operand::shifted;
    // Modulo 2^32, as the sums of the kernels.
    const uint32_t x_zero_point = static_cast<uint32_t>(shifted ? activation.shifted_zero_point() : 0);
    const uint32_t depth = static_cast<uint32_t>(w.tap_count * w.channels);
    for (int64_t i = 0; i < all; ++i) {
        uint32_t b = out.bias != nullptr && i < w.n ? static_cast<uint32_t>(out.bias[first + i]) : 0u;
        uint32_t sum = static_cast<uint32_t>(w.sums[static_cast<size_t>(i)]);
        if (!w.zero_point.empty()) sum -= depth * static_cast<uint32_t>(w.zero_point[static_cast<size_t>(i)]);
        b -= x_zero_point * sum;
        bias[i] = low32(static_cast<int64_t>(b));
    }
    for (int64_t i = 0; i < all; ++i)
        multiplier[i] = i >= w.n ? 0.0f : out.multipliers == 1 ? out.multiplier[0] : out.multiplier[first + i];
    if (out.float_bias != nullptr)
        for (int64_t i = 0; i < all; ++i) float_bias[i] = i < w.n ? out.float_bias[first + i] : 0.0f;

    Epilogue e;
    e.type = out.type;
    e.bias = bias;
    e.multiplier = multiplier;
    e.float_bias = out.float_bias != nullptr ? float_bias : nullptr;
    e.leaky = out.leaky;
    e.slope = out.slope;
    e.low = out.low;
    e.high = out.high;
    e.zero_point = out.zero_point;
    e.lo = out.lo;
    e.hi = out.hi;
    e.z = out.z;
    e.z_signed = out.z_type == IntType::s8;
    e.z_zero_point = out.z_zero_point;
    e.z_multiplier = out.z_multiplier;
    e.table = out.table;
    return e;
}

Activation activation_of(const MatmulInput& input) { return {input.type == IntType::s8, input.zero_point}; }

void require_valid(const char* operation, const WeightTensor& w, int64_t n) {
    require(w.zero_points == 0 || w.zero_points == 1 || w.zero_points == n, operation,
            "there are " + std::to_string(w.zero_points) + " weight zero_points for " + std::to_string(n) +
                " output channels");
    require_zero_point(operation, "the weights", w.type, 0);
    for (int64_t i = 0; i < w.zero_points; ++i) require_zero_point(operation, "the weights", w.type, w.zero_point[i]);
}

void require_valid(const char* operation, const MatmulInput& input, const MatmulOutput& out, int64_t n) {
    require_zero_point(operation, "the input", input.type, input.zero_point);
    require(out.multiplier != nullptr && (out.multipliers == 1 || out.multipliers == n), operation,
            "there are " + std::to_string(out.multipliers) + " multipliers for " + std::to_string(n) +
                " output channels");
    if (out.type == OutputType::f32) {
        require(out.z == nullptr && out.table == nullptr, operation, "a residual or a table needs 8-bit output");
        return;
    }
    require(out.float_bias == nullptr, operation, "float_bias needs float32 output");
    const IntType type = out.type == OutputType::u8 ? IntType::u8 : IntType::s8;
    require_zero_point(operation, "the output", type, out.zero_point);
    require_zero_point(operation, "the lower bound of the output", type, out.lo);
    require_zero_point(operation, "the upper bound of the output", type, out.hi);
    require(out.lo <= out.hi, operation, "the bounds of the output are in the wrong order");
    if (out.z != nullptr) require_zero_point(operation, "the residual", out.z_type, out.z_zero_point);
}

Tiling tiling(int64_t strips, int64_t macs, int64_t panels) {
    // A thread that is awake takes its part within a microsecond or two: about this many multiplications.
    constexpr int64_t kWorth = 200000;
    constexpr int64_t kTasksPerThread = 4;
    Tiling t;
    t.strips = strips;
    t.panels_per_chunk = panels;
    const int64_t threads = num_threads();
    if (strips == 0 || panels == 0) return t;
    if (strips < threads * kTasksPerThread) {
        const int64_t wanted = (threads * kTasksPerThread + strips - 1) / strips;
        const int64_t worth = std::max<int64_t>(1, macs / kWorth);
        const int64_t chunks = std::min({wanted, worth, panels});
        // Pairs of panels, which the kernels take together.
        t.panels_per_chunk = round_up((panels + chunks - 1) / chunks, panels > 1 ? 2 : 1);
        t.chunks = (panels + t.panels_per_chunk - 1) / t.panels_per_chunk;
    }
    t.grain = std::max<int64_t>(1, kWorth * t.chunks / std::max<int64_t>(1, macs));
    return t;
}

}  // namespace zeropoint
