// Dot products of bytes on four neighbouring pixels, as in_place_vnni.h has them, for blocks of 16 channels:
// interleaving the bytes of four pixels makes four vectors of four channels each. Dot says how:
//   flip(is_signed)     what the bits of an activation are changed with, so that it has the sign that dot takes
//   kOffset             what that adds to an activation as in_place.h means it: sums begin with -kOffset sum(w)
//   dot(sum, x, w)      four products for each lane
#pragma once

#include "kernels/depthwise/interleaved_pixels.h"
#include "kernels/gemm/epilogue.h"
#include "kernels/simd/neon.h"

#include <type_traits>

namespace zeropoint {
namespace {

constexpr int64_t kChannels = 16;  // of a block

template <class Dot, int kWidth, int kStride>
class InPlaceArm {
    using P = Places<kWidth, kStride>;
    static constexpr int64_t kSet = kQuad * kChannels, kRow = P::kSets * kSet;  // bytes of weights

public:
    static int64_t blocks(int64_t channels) { return (channels + kChannels - 1) / kChannels; }
    // The weights, then their sums.
    static size_t packed_bytes(int64_t rows, int64_t channels) {
        return static_cast<size_t>(blocks(channels) * (rows * kRow + kChannels * 4));
    }
    static void pack(int64_t rows, int64_t channels, const int8_t* w, uint8_t* to) {
        uint8_t* const sums = to + blocks(channels) * rows * kRow;
        for (int64_t c = 0; c < channels; ++c) {
            int32_t sum = 0;
            for (int64_t i = 0; i < rows * kWidth; ++i) sum += w[c * rows * kWidth + i];
            std::memcpy(sums + 4 * c, &sum, sizeof sum);
            for (int64_t i = 0; i < rows; ++i)
                for (int q = 0; q < P::kQuads; ++q)
                    for (int column = 0; column < kColumns; ++column)
                        for (int k = 0; k < kQuad && P::reads(q, column); ++k) {
                            const int at = P::first(q, column) + k;
                            const int64_t byte = c % kChannels * kQuad + k;
                            if (at >= 0 && at < kWidth)
                                to[(c / kChannels * rows + i) * kRow + P::set(q, column) * kSet + byte] =
                                    static_cast<uint8_t>(w[(c * rows + i) * kWidth + at]);
                        }
        }
    }
    static void multiply(const InPlaceArgs& a, int64_t begin, int64_t end) {
        const int64_t past = end * kInPlaceUnit < a.channels ? end * kInPlaceUnit : a.channels;
        for (int64_t first = begin * kInPlaceUnit; first < past; first += kChannels) InPlaceArm(a, first).run();
    }

private:
    InPlaceArm(const InPlaceArgs& a, int64_t first)
        : a_(a),
          first_(first),
          left_(a.channels - first < kChannels ? a.channels - first : kChannels),
          finish_(a.epilogue, a.y, first / kPanel, a.channels - first),
          w_(reinterpret_cast<const int8_t*>(a.w) + first / kChannels * a.shape.rows * kRow) {
        const uint8_t* const sums = a.w + blocks(a.channels) * a.shape.rows * kRow + first * 4;
        for (int v = 0; v < 4; ++v) {
            int32x4_t sum;
            std::memcpy(&sum, sums + 16 * v, sizeof sum);
            start_[v] = vmulq_n_s32(sum, -Dot::kOffset);
        }
    }

    void run() const {
        int64_t line = 0;
        for (; line + 2 <= a_.out_lines; line += 2) run_lines<2>(line);
        if (line < a_.out_lines) run_lines<1>(line);
    }

    template <int kLines>
    struct Sums {
        int32x4_t of[kLines][kColumns][4];
    };

    // The weights of a kernel row of the first output line, and of the second, times the pixels from `x` on.
    template <int kLines, bool kFirst, bool kSecond>
    static inline __attribute__((always_inline)) void add_line(const uint8_t* x, int64_t pixel, uint8x16_t flip,
                                                               const int8_t* w, const int8_t* w_second,
                                                               Sums<kLines>& sums) {
#pragma GCC unroll 3
        for (int q = 0; q < P::kQuads; ++q) {
            // Where there is no pixel the weights are zero, and any will do.
            const auto at = [&](int i) __attribute__((always_inline)) {
                const int p = q * kQuad + i < P::kPixels ? q * kQuad + i : P::kPixels - 1;
                return veorq_u8(vld1q_u8(x + p * pixel), flip);
            };
            const uint8x16_t p0 = at(0), p1 = at(1), p2 = at(2), p3 = at(3);
            const uint16x8_t low = vreinterpretq_u16_u8(vzip1q_u8(p0, p1)),
                             high = vreinterpretq_u16_u8(vzip2q_u8(p0, p1)),
                             low2 = vreinterpretq_u16_u8(vzip1q_u8(p2, p3)),
                             high2 = vreinterpretq_u16_u8(vzip2q_u8(p2, p3));
            const uint8x16_t quads[4] = {
                vreinterpretq_u8_u16(vzip1q_u16(low, low2)), vreinterpretq_u8_u16(vzip2q_u16(low, low2)),
                vreinterpretq_u8_u16(vzip1q_u16(high, high2)), vreinterpretq_u8_u16(vzip2q_u16(high, high2))};
#pragma GCC unroll 2
            for (int column = 0; column < kColumns; ++column) {
                if (!P::reads(q, column)) continue;
#pragma GCC unroll 4
                for (int v = 0; v < 4; ++v) {
                    const int64_t from = P::set(q, column) * kSet + v * 16;
                    int32x4_t& first = sums.of[0][column][v];
                    int32x4_t& second = sums.of[kLines - 1][column][v];
                    if (kFirst) first = Dot::dot(first, quads[v], vld1q_s8(w + from));
                    if (kSecond) second = Dot::dot(second, quads[v], vld1q_s8(w_second + from));
                }
            }
        }
    }

    // A tile whose pixels begin `offset` bytes into the lines, `pixel` bytes from one to the next; acc has the sums of
    // each output.
    template <int kLines>
    __attribute__((noinline)) void sum_up(const uint8_t* const* lines, int64_t offset, int64_t pixel,
                                          int32_t (*acc)[kColumns * kPanel]) const {
        Sums<kLines> sums;
#pragma GCC unroll 2
        for (int line = 0; line < kLines; ++line)
#pragma GCC unroll 2
            for (int column = 0; column < kColumns; ++column)
#pragma GCC unroll 4
                for (int v = 0; v < 4; ++v) sums.of[line][column][v] = start_[v];
        const int64_t rows = a_.shape.rows, step = kLines == 2 ? a_.shape.stride_h : rows;
        const uint8x16_t flip = vdupq_n_u8(Dot::flip(a_.activation.is_signed));
        const int8_t* const w = w_;
        int64_t i = 0;
        for (; i < rows && i < step; ++i)
            add_line<kLines, true, false>(lines[i] + offset, pixel, flip, w + i * kRow, nullptr, sums);
        if constexpr (kLines == 2) {
            for (; i < rows; ++i)
                add_line<2, true, true>(lines[i] + offset, pixel, flip, w + i * kRow, w + (i - step) * kRow, sums);
            for (i = step > rows ? step : rows; i < step + rows; ++i)
                add_line<2, false, true>(lines[i] + offset, pixel, flip, nullptr, w + (i - step) * kRow, sums);
        }
#pragma GCC unroll 2
        for (int line = 0; line < kLines; ++line)
#pragma GCC unroll 2
            for (int column = 0; column < kColumns; ++column)
#pragma GCC unroll 4
                for (int v = 0; v < 4; ++v) vst1q_s32(acc[line] + column * kPanel + 4 * v, sums.of[line][column][v]);
    }

    // `columns`: how many of a tile's outputs side by side there are.
    template <int kLines>
    void store(const int32_t (*acc)[kColumns * kPanel], int64_t y, int64_t columns) const {
        for (int line = 0; line < kLines; ++line) {
            const int64_t first = y + line * a_.out_width * a_.channels;
            const int64_t y_rows[kColumns] = {first, first + a_.channels};
            finish_(acc[line], columns, y_rows);
        }
    }

    // A tile that reads beyond the sides, or beyond the last channel: its pixels are copied.
    template <int kLines>
    __attribute__((noinline)) void from_copy(const uint8_t* const* lines, int64_t tile, int64_t y) const {
        uint8_t patch[kMostLines][P::kPixels * kChannels];
        const uint8_t* copies[kMostLines];
        const int64_t begin = tile * kColumns * kStride - a_.left;
        const int64_t count = a_.shape.rows + (kLines - 1) * a_.shape.stride_h;
        for (int64_t i = 0; i < count; ++i) {
            copies[i] = patch[i];
            for (int64_t p = 0; p < P::kPixels; ++p) {
                const int64_t at = begin + p;
                uint8_t* const to = patch[i] + p * kChannels;
                std::memset(to, a_.activation.zero_point, kChannels);
                if (at >= 0 && at < a_.width)
                    std::memcpy(to, lines[i] + at * a_.channels + first_, static_cast<size_t>(left_));
            }
        }
        alignas(16) int32_t acc[kLines][kColumns * kPanel];
        sum_up<kLines>(copies, 0, kChannels, acc);
        const int64_t left = a_.out_width - tile * kColumns;
        store<kLines>(acc, y + tile * kColumns * a_.channels, left < kColumns ? left : kColumns);
    }

    // The tiles of one or two lines of the output.
    template <int kLines>
    void run_lines(int64_t line) const {
        const uint8_t* const* const lines = a_.lines + line * a_.shape.stride_h;
        const int64_t y = a_.out + line * a_.out_width * a_.channels, pixel = a_.channels;
        const int64_t tiles = (a_.out_width + kColumns - 1) / kColumns, step = kColumns * kStride;
        // Those that read only what is there, and have all outputs.
        const int64_t begin = left_ < kChannels ? tiles : min((a_.left + step - 1) / step, tiles);
        const int64_t room = a_.width + a_.left - P::kPixels;
        const int64_t end = max(begin, min(room < 0 ? 0 : room / step + 1, a_.out_width / kColumns));
        for (int64_t tile = 0; tile < begin; ++tile) from_copy<kLines>(lines, tile, y);
        for (int64_t tile = begin; tile < end; ++tile) {
            alignas(16) int32_t acc[kLines][kColumns * kPanel];
            sum_up<kLines>(lines, (tile * step - a_.left) * pixel + first_, pixel, acc);
            store<kLines>(acc, y + tile * kColumns * pixel, kColumns);
        }
        for (int64_t tile = end; tile < tiles; ++tile) from_copy<kLines>(lines, tile, y);
    }

    static int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }
    static int64_t max(int64_t a, int64_t b) { return a > b ? a : b; }

    const InPlaceArgs& a_;
    const int64_t first_, left_;  // channels: the first, and how many there are
    const PanelEpilogue<Neon> finish_;
    const int8_t* const w_;
    int32x4_t start_[4];
};

// Calls each(InPlaceArm<...>) for the shape, if there is one.
template <class Dot, class Each>
inline bool for_in_place(const InPlaceShape& s, const Each& each) {
    if (s.rows < 1 || s.rows > kMostRows || s.stride_h < 1 || s.stride_h > kMostLines - kMostRows) return false;
    const auto call = [&](auto width, auto stride) {
        each(static_cast<InPlaceArm<Dot, decltype(width)::value, decltype(stride)::value>*>(nullptr));
        return true;
    };
    constexpr std::integral_constant<int, 1> kOne{};
    constexpr std::integral_constant<int, 2> kTwo{};
    switch (s.columns * 10 + s.stride) {
        case 31: return call(std::integral_constant<int, 3>(), kOne);
        case 32: return call(std::integral_constant<int, 3>(), kTwo);
        case 51: return call(std::integral_constant<int, 5>(), kOne);
        case 52: return call(std::integral_constant<int, 5>(), kTwo);
        case 71: return call(std::integral_constant<int, 7>(), kOne);
        case 72: return call(std::integral_constant<int, 7>(), kTwo);
        default: return false;
    }
}

template <class Dot>
inline const InPlaceKernel& in_place_arm() {
    static const InPlaceKernel kernel = {
        [](const InPlaceShape& s) { return for_in_place<Dot>(s, [](auto*) {}); },
        [](const InPlaceShape& s, int64_t channels) {
            size_t bytes = 0;
            for_in_place<Dot>(s, [&](auto* k) { bytes = k->packed_bytes(s.rows, channels); });
            return bytes;
        },
        [](const InPlaceShape& s, int64_t channels, const int8_t* w, uint8_t* to) {
            for_in_place<Dot>(s, [&](auto* k) { k->pack(s.rows, channels, w, to); });
        },
        [](const InPlaceArgs& a, int64_t begin, int64_t end) {
            for_in_place<Dot>(a.shape, [&](auto* k) { k->multiply(a, begin, end); });
        },
    };
    return kernel;
}

}  // namespace
}  // namespace zeropoint
