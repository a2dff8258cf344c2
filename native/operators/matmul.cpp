#include "operators/matmul.h"

#include "cpu/machine.h"
#include "cpu/threads.h"
#include "kernels/conversions.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>

namespace zeropoint {
namespace {

// Stored weights are s8: u8 minus 128.
int32_t shift_of(IntType type) { return type == IntType::u8 ? 128 : 0; }

const char* type_name(IntType type) { return type == IntType::u8 ? "u8" : type == IntType::s8 ? "s8" : "other"; }

// `what` is called only on failure: the hot path makes no strings.
template <class What>
void require(bool ok, const char* operation, const What& what) {
    if (!ok) throw std::invalid_argument(std::string(operation) + ": " + what());
}

void require_zero_point(const char* operation, const char* whose, IntType type, int32_t zero_point) {
    require(type == IntType::u8 || type == IntType::s8, operation,
            [&] { return std::string(whose) + " must be u8 or s8"; });
    const int32_t low = type == IntType::u8 ? 0 : -128, high = type == IntType::u8 ? 255 : 127;
    require(zero_point >= low && zero_point <= high, operation, [&] {
        return std::string("the zero_point of ") + whose + " is " + std::to_string(zero_point) + ", outside " +
               type_name(type);
    });
}

// `words` times the channels that stand side by side, each as one word.
// `step`: bytes from one to the next where they go.
template <class Word>
void put_words(const uint8_t* from, int64_t words, uint8_t flip, int8_t* to, int64_t step) {
    constexpr int64_t kSize = sizeof(Word);
    Word flips;
    std::memset(&flips, flip, sizeof flips);
    for (int64_t i = 0; i < words; ++i) {
        Word word;
        std::memcpy(&word, from + i * kSize, sizeof word);
        word = static_cast<Word>(word ^ flips);
        std::memcpy(to + i * step, &word, sizeof word);
    }
}

int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

}  // namespace

PackedWeights pack_weights(const GemmKernel& kernel, const WeightTensor& w, int64_t first, int64_t n,
                           int64_t stored_taps, int64_t channels, const std::vector<std::vector<int64_t>>& taps) {
    PackedWeights packed;
    pack_weights(kernel, w, first, n, stored_taps, channels, taps, packed);
    return packed;
}

void pack_weights(const GemmKernel& kernel, const WeightTensor& w, int64_t first, int64_t n, int64_t stored_taps,
                  int64_t channels, const std::vector<std::vector<int64_t>>& taps, PackedWeights& p) {
    p.n = n;
    p.tap_count = static_cast<int64_t>(taps.size());
    const int64_t parts = taps.empty() ? 0 : static_cast<int64_t>(taps[0].size());
    p.channels = parts * channels;
    const int64_t together = kernel.layout.together, padded = kernel.layout.padded(p.channels);
    const int64_t all = p.panel_count() * kPanel, panel_size = p.tap_count * padded * kPanel;
    const size_t bytes = static_cast<size_t>(p.panel_count() * panel_size);
    if (p.panels.size() < bytes)
        p.panels = AlignedBytes(bytes);
    else if (n < all && bytes > 0) {  // the output channels that are not there: their panel may stand between others
        const int64_t last = std::min(p.panel_count(), kernel.layout.group) * panel_size;
        std::memset(p.panels.data() + bytes - static_cast<size_t>(last), 0, static_cast<size_t>(last));
    }
    p.sums.assign(static_cast<size_t>(all), 0);
    p.zero_point.assign(static_cast<size_t>(all), 0);
    bool any = false;
    const int32_t shift = shift_of(w.type);
    for (int64_t i = 0; i < n; ++i) {
        const int32_t plain = w.zero_point_of(first + i);
        p.zero_point[static_cast<size_t>(i)] = plain - shift;
        any = any || plain != shift;
    }
    int8_t* to = reinterpret_cast<int8_t*>(p.panels.data());
    const uint8_t flip = w.type == IntType::u8 ? 0x80 : 0;
    for (int64_t i = 0; i < n; ++i) {
        const uint8_t* from = static_cast<const uint8_t*>(w.data) + (first + i) * stored_taps * channels;
        const int32_t padding = kernel.operand == Operand::centered ? p.zero_point[static_cast<size_t>(i)] : 0;
        int64_t sum = 0;
        const PanelLayout::Place place = kernel.layout.place(i / kPanel, p.panel_count(), panel_size);
        for (int64_t t = 0; t < p.tap_count; ++t) {
            int8_t* at = to + place.begin + t * (padded / together) * place.step + i % kPanel * together;
            int64_t beside = 0;  // how many of the channels that stand side by side are there
            const auto put = [&](int8_t value) {
                *at++ = value;
                if (++beside < together) return;
                beside = 0;
                at += place.step - together;
            };
            for (int64_t source : taps[static_cast<size_t>(t)]) {
                const uint8_t* row = from + source * channels;
                int32_t part = 0;
                for (int64_t c = 0; c < channels; ++c) part += static_cast<int8_t>(row[c] ^ flip);
                sum += part;
                const int64_t words = beside == 0 && (together == 2 || together == 4) ? channels / together : 0;
                if (together == 2)
                    put_words<uint16_t>(row, words, flip, at, place.step);
                else
                    put_words<uint32_t>(row, words, flip, at, place.step);
                at += words * place.step;
                for (int64_t c = words * together; c < channels; ++c) put(static_cast<int8_t>(row[c] ^ flip));
            }
            for (int64_t c = p.channels; c < padded; ++c) put(static_cast<int8_t>(padding));
        }
        p.sums[static_cast<size_t>(i)] = low32(sum);
    }
    if (!any) p.zero_point.clear();
}

// The arrays, and one number behind them: Epilogue::bounded.
size_t fold_bytes(const PackedWeights& w) { return static_cast<size_t>(w.panel_count() * kPanel) * 12 + 64; }

Epilogue fold(Operand operand, const PackedWeights& w, const Activation& activation, const MatmulOutput& out,
              int64_t first, uint8_t* memory) {
    fold_arrays(operand, w, activation, out, first, memory);
    return folded(w, out, memory);
}

void fold_arrays(Operand operand, const PackedWeights& w, const Activation& activation, const MatmulOutput& out,
                 int64_t first, uint8_t* memory) {
    const int64_t all = w.panel_count() * kPanel;
    int32_t* bias = reinterpret_cast<int32_t*>(memory);
    float* multiplier = reinterpret_cast<float*>(bias + all);
    float* float_bias = multiplier + all;
    const bool shifted = operand == Operand::shifted;
    // Modulo 2^32, as the sums of the kernels.
    const uint32_t x_zero_point = static_cast<uint32_t>(shifted ? activation.shifted_zero_point() : 0);
    const uint32_t depth = static_cast<uint32_t>(w.tap_count * w.channels);
    // Loops without conditions: for one row of activations, this is a part of the work that counts.
    const auto copy = [&](const auto* from, auto value, auto* to) {
        for (int64_t i = 0; i < w.n; ++i) to[i] = from != nullptr ? from[first + i] : value;
        for (int64_t i = w.n; i < all; ++i) to[i] = 0;
    };
    copy(out.bias, 0, bias);
    if (x_zero_point != 0) {
        for (int64_t i = 0; i < all; ++i) {
            uint32_t sum = static_cast<uint32_t>(w.sums[static_cast<size_t>(i)]);
            if (!w.zero_point.empty()) sum -= depth * static_cast<uint32_t>(w.zero_point[static_cast<size_t>(i)]);
            const uint32_t folded = static_cast<uint32_t>(bias[i]) - x_zero_point * sum;
            std::memcpy(bias + i, &folded, sizeof folded);
        }
    }
    copy(out.multipliers == 1 ? nullptr : out.multiplier, out.multiplier[0], multiplier);
    copy(out.float_bias, 0.0f, float_bias);
    constexpr float kMultiplier = 1.0f / 4, kBias = 1 << 28;  // 2^31 / 4 + 2^28 < 2^30
    int32_t beyond = 0;                                       // NaN is beyond, too
    for (int64_t i = 0; i < all; ++i)
        beyond |= static_cast<int32_t>(!(std::fabs(multiplier[i]) <= kMultiplier)) |
                  static_cast<int32_t>(!(std::fabs(float_bias[i]) <= kBias));
    *reinterpret_cast<int32_t*>(float_bias + all) = beyond;
}

Epilogue folded(const PackedWeights& w, const MatmulOutput& out, const uint8_t* memory) {
    const int64_t all = w.panel_count() * kPanel;
    Epilogue e;
    static_cast<OutputForm&>(e) = out;
    if (out.function != nullptr) e.type = OutputType::f32;
    e.bias = reinterpret_cast<const int32_t*>(memory);
    e.multiplier = reinterpret_cast<const float*>(e.bias + all);
    e.float_bias = e.multiplier + all;
    e.after = out.after;
    e.first = out.first;
    e.zero_point_first = out.zero_point_first;
    e.z_multiplier = out.z_multiplier;
    e.bounded = *reinterpret_cast<const int32_t*>(e.float_bias + all) == 0;
    return e;
}

Activation activation_of(const MatmulInput& input) { return {input.type == IntType::s8, input.zero_point}; }

void require_valid(const char* operation, const WeightTensor& w, int64_t n) {
    require(w.zero_points == 0 || w.zero_points == 1 || w.zero_points == n, operation, [&] {
        return "there are " + std::to_string(w.zero_points) + " weight zero_points for " + std::to_string(n) +
               " output channels";
    });
    require_zero_point(operation, "the weights", w.type, 0);
    for (int64_t i = 0; i < w.zero_points; ++i) require_zero_point(operation, "the weights", w.type, w.zero_point[i]);
}

void require_valid(const char* operation, const MatmulInput& input, const MatmulOutput& out, int64_t n) {
    require_zero_point(operation, "the input", input.type, input.zero_point);
    require(out.multiplier != nullptr && (out.multipliers == 1 || out.multipliers == n), operation, [&] {
        return "there are " + std::to_string(out.multiplier != nullptr ? out.multipliers : 0) + " multipliers for " +
               std::to_string(n) + " output channels";
    });
    if (out.type == OutputType::f32) {
        require(out.z == nullptr && out.table == nullptr && out.then == nullptr, operation,
                [] { return "a residual, a table or a sum needs 8-bit output"; });
        require(out.function == nullptr || !out.leaky(), operation,
                [] { return "a function of float32 must be the only thing that happens to the output"; });
        return;
    }
    const IntType type = out.type == OutputType::u8 ? IntType::u8 : IntType::s8;
    require_zero_point(operation, "the output", type, out.zero_point);
    const int32_t low = type == IntType::u8 ? 0 : -128, high = type == IntType::u8 ? 255 : 127;
    require(low <= out.lo && out.lo <= out.hi && out.hi <= high, operation, [&] {
        return "the bounds of the output are " + std::to_string(out.lo) + " and " + std::to_string(out.hi) + " for " +
               type_name(type);
    });
    if (out.z != nullptr) require_zero_point(operation, "the residual", out.z_type, out.z_zero_point);
    require(out.function == nullptr ||
                (out.z == nullptr && out.table == nullptr && out.then == nullptr && !out.leaky()),
            operation, [] { return "a function of float32 must be the only thing that happens to the output"; });
    if (out.then != nullptr)
        require(out.then->type == type && !out.then->b_is_one && out.z == nullptr, operation,
                [] { return "what is combined with the output must be like it, and the only thing that is"; });
}

Tiling tiling(int64_t strips, int64_t macs, int64_t panels) {
    const int64_t least = worth_macs(1);
    constexpr int64_t kTasksPerThread = 4;
    Tiling t;
    t.strips = strips;
    t.panels_per_chunk = panels;
    const int64_t threads = num_threads();
    if (strips == 0 || panels == 0) return t;
    if (strips < threads * kTasksPerThread) {
        const int64_t wanted = (threads * kTasksPerThread + strips - 1) / strips;
        const int64_t worth = std::max<int64_t>(1, macs / least);
        int64_t chunks = std::min({wanted, worth, panels});
        // As many for each thread.
        if (chunks > threads) chunks = chunks / threads * threads;
        const auto parts = [&](int64_t per) { return (panels + per - 1) / per; };
        const int64_t per = parts(chunks);
        t.panels_per_chunk = per;
        // Panels that kernels take together, unless a thread then has nothing to do.
        for (const int64_t together : {4, 2}) {
            const int64_t whole = round_up(per, together);
            if (per <= 4 * together && parts(whole) % threads != 0) continue;
            t.panels_per_chunk = whole;
            break;
        }
        t.chunks = parts(t.panels_per_chunk);
    }
    t.grain = std::max<int64_t>(1, least * t.chunks / std::max<int64_t>(1, macs));
    return t;
}

}  // namespace zeropoint
