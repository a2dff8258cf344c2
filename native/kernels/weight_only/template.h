// weight_only over a vector type V and its Weights, which turn a step of packed weights into kWeightPanel floats.
//
// Few rows: weights go from memory through registers into the sums, one or two panels at a time. Many rows: a block of
// a panel is unpacked once into scratch memory, which stays in L1, and multiplied with the rows in tiles; float16 are
// converted for each tile.
#pragma once

#include "kernels/weight_only/blocks.h"

namespace zeropoint {
namespace {

template <class V, class Weights>
struct WeightOnly {
    using F = typename V::F;
    static constexpr int W = V::W, kVectors = kWeightPanel / W;

    // The weights of one panel from input `begin` of a group on.
    template <WeightFormat format>
    struct Stream {
        static constexpr int64_t kInputs = format == WeightFormat::u4 ? 2 : 1;  // of a step
        const uint8_t* at;
        F offset[kVectors];

        Stream(const WeightOnlyArgs& a, int64_t panel, int64_t group, int64_t begin) {
            at = a.panels + (panel * weight_steps(format, a.inputs) + begin / kInputs) * weight_step_bytes(format);
            if constexpr (format != WeightFormat::f16) {
                const float* zero_point = a.zero_point + (panel * a.groups + group) * kWeightPanel;
                for (int v = 0; v < kVectors; ++v)
                    offset[v] = V::add(V::load(zero_point + v * W), V::set(Weights::kBias));
            }
        }

        // Calls use(i, v, weights) for each vector v of each input i of the next step, one input after the other.
        template <class Use>
        __attribute__((always_inline)) void next(const Use& use) {
            const auto centered = [&](int i, int v, F w)
                                      __attribute__((always_inline)) { use(i, v, V::sub(w, offset[v])); };
            if constexpr (format == WeightFormat::f16)
                Weights::halves(reinterpret_cast<const uint16_t*>(at), use);
            else if constexpr (format == WeightFormat::u8)
                Weights::bytes(at, centered);
            else
                Weights::nibbles(at, centered);
            at += weight_step_bytes(format);
        }
    };

    static void store(const WeightOnlyArgs& a, int64_t row, int64_t panel, const float* y) {
        const int64_t first = panel * kWeightPanel, rest = a.outputs - first;
        const int count = rest < kWeightPanel ? static_cast<int>(rest) : kWeightPanel;
        for (int n = 0; n < count; ++n) finish(a, row, first + n, y[n]);
    }

    // y += a block's sums, scaled.
    static F scaled(const WeightOnlyArgs& a, int64_t row, int64_t block, int64_t at, F acc, F y) {
        y = V::fma(a.scale != nullptr ? V::load(a.scale + at) : V::set(1.0f), acc, y);
        if (a.shift != nullptr) y = V::fma(V::load(a.shift + at), V::set(a.sums[row * a.sums_stride + block]), y);
        return y;
    }

    // ------------------------------------------------------------------------------------------------ few rows

    static constexpr int64_t kNear = 2048;  // what memory is asked for while this far before is in use

    // The sums of one block, for kRows rows and kPanels panels. A function of its own: nothing else is in registers.
    template <WeightFormat format, int kRows, int kPanels>
    __attribute__((noinline)) static void sum_block(const WeightOnlyArgs& a, int64_t panel, int64_t group,
                                                    int64_t begin, int64_t end, float* sums) {
        constexpr int kInputs = Stream<format>::kInputs, kSums = kPanels * kVectors;
        F acc[kRows][kSums];
#pragma GCC unroll 4
        for (int m = 0; m < kRows; ++m)
#pragma GCC unroll 8
            for (int v = 0; v < kSums; ++v) acc[m][v] = V::set(0.0f);
        Stream<format> first(a, panel, group, begin), second(a, panel + kPanels - 1, group, begin);
        const float* x = a.x;
        const int64_t stride = a.x_stride;
        const auto step = [&](int64_t k, int64_t count) __attribute__((always_inline)) {
            F from[kRows];
            const auto add = [&](int p) __attribute__((always_inline)) {
                return [&, p](int i, int v, F w) __attribute__((always_inline)) {
                    if (i >= count) return;
#pragma GCC unroll 4
                    for (int m = 0; m < kRows; ++m) {
                        if (v == 0) from[m] = V::set(x[m * stride + k + i]);
                        acc[m][p * kVectors + v] = V::fma(from[m], w, acc[m][p * kVectors + v]);
                    }
                };
            };
            __builtin_prefetch(first.at + kNear);
            first.next(add(0));
            if constexpr (kPanels > 1) {
                __builtin_prefetch(second.at + kNear);
                second.next(add(1));
            }
        };
        int64_t k = begin;
        for (; k + kInputs <= end; k += kInputs) step(k, kInputs);
        if (k < end) step(k, 1);  // one of two 4-bit inputs
#pragma GCC unroll 4
        for (int m = 0; m < kRows; ++m)
#pragma GCC unroll 8
            for (int v = 0; v < kSums; ++v) V::store(sums + (m * kSums + v) * W, acc[m][v]);
    }

    template <WeightFormat format, int kRows, int kPanels>
    static void stream(const WeightOnlyArgs& a, int64_t panel) {
        constexpr int kSize = kPanels * kWeightPanel;
        alignas(64) float y[kRows * kSize] = {}, sums[kRows * kSize];
        for_each_block(a.inputs, a.group_size, [&](int64_t block, int64_t group, int64_t begin, int64_t end) {
            sum_block<format, kRows, kPanels>(a, panel, group, begin, end, sums);
            for (int m = 0; m < kRows; ++m)
                for (int n = 0; n < kSize; n += W) {
                    const int64_t at =
                        ((panel + n / kWeightPanel) * a.groups + group) * kWeightPanel + n % kWeightPanel;
                    float* to = y + m * kSize + n;
                    V::store(to, scaled(a, m, block, at, V::load(sums + m * kSize + n), V::load(to)));
                }
        });
        for (int m = 0; m < kRows; ++m)
            for (int p = 0; p < kPanels; ++p) store(a, m, panel + p, y + m * kSize + p * kWeightPanel);
    }

    template <WeightFormat format>
    static void few(const WeightOnlyArgs& a, int64_t begin, int64_t end) {
        int64_t panel = begin;
        if (a.rows == 1)
            for (; panel + 2 <= end; panel += 2) stream<format, 1, 2>(a, panel);
        for (; panel < end; ++panel) switch (a.rows) {
                case 1: stream<format, 1, 1>(a, panel); break;
                default: stream<format, 2, 1>(a, panel); break;
            }
    }

    // ----------------------------------------------------------------------------------------------- many rows

    static constexpr int kTile = 6;  // rows; times two vectors

    // What is read next: asked for from memory bit by bit, while the arithmetic goes on.
    struct Ahead {
        const uint8_t* at;
        int64_t step;
    };

    // T: float for weights that were unpacked, uint16_t for float16 as they are stored.
    template <int kRows, class T>
    __attribute__((noinline)) static void tile(const WeightOnlyArgs& a, const T* w, int64_t row, int64_t block,
                                               int64_t begin, int64_t end, int64_t at, float* y, Ahead ahead) {
        F acc[kRows][2];
#pragma GCC unroll 6
        for (int m = 0; m < kRows; ++m) acc[m][0] = acc[m][1] = V::set(0.0f);
        const float* x = a.x + row * a.x_stride;
        const int64_t stride = a.x_stride;
        for (int64_t k = begin; k < end; ++k, w += kWeightPanel) {
            __builtin_prefetch(ahead.at);
            ahead.at += ahead.step;
            const F w0 = Weights::load(w), w1 = Weights::load(w + W);
#pragma GCC unroll 6
            for (int m = 0; m < kRows; ++m) {
                const F from = V::set(x[m * stride + k]);
                acc[m][0] = V::fma(from, w0, acc[m][0]);
                acc[m][1] = V::fma(from, w1, acc[m][1]);
            }
        }
#pragma GCC unroll 6
        for (int m = 0; m < kRows; ++m)
#pragma GCC unroll 2
            for (int v = 0; v < 2; ++v) {
                float* to = y + m * kWeightPanel + v * W;
                V::store(to, scaled(a, row + m, block, at + v * W, acc[m][v], V::load(to)));
            }
    }

    // All rows and the outputs of a panel, for one block, whose weights start at `w`; the next is at ahead.at.
    template <class T>
    static void tiles(const WeightOnlyArgs& a, const T* w, int64_t panel, int64_t block, int64_t group, int64_t begin,
                      int64_t end, float* y, Ahead ahead) {
        ahead.step = ahead.step * 2 * W / kWeightPanel;
        for (int n = 0; n < kWeightPanel; n += 2 * W) {
            const int64_t at = (panel * a.groups + group) * kWeightPanel + n;
            // Tiles of nearly the same height: one or two rows alone would wait for their own sums.
            int64_t left = (a.rows + kTile - 1) / kTile;
            for (int64_t row = 0, count = 0; row < a.rows; row += count, --left) {
                count = (a.rows - row + left - 1) / left;
                float* to = y + row * kWeightPanel + n;
                const Ahead next = row == 0 ? ahead : Ahead{ahead.at, 0};
                switch (count) {
                    case 1: tile<1>(a, w + n, row, block, begin, end, at, to, next); break;
                    case 2: tile<2>(a, w + n, row, block, begin, end, at, to, next); break;
                    case 3: tile<3>(a, w + n, row, block, begin, end, at, to, next); break;
                    case 4: tile<4>(a, w + n, row, block, begin, end, at, to, next); break;
                    case 5: tile<5>(a, w + n, row, block, begin, end, at, to, next); break;
                    default: tile<kTile>(a, w + n, row, block, begin, end, at, to, next); break;
                }
            }
            ahead.at += ahead.step * (end - begin);
        }
    }

    template <WeightFormat format>
    static void many(const WeightOnlyArgs& a, int64_t begin, int64_t end, float* scratch) {
        float *unpacked = scratch, *y = scratch + kWeightBlock * kWeightPanel;
        for (int64_t panel = begin; panel < end; ++panel) {
            for (int64_t i = 0; i < a.rows * kWeightPanel; ++i) y[i] = 0;
            for_each_block(a.inputs, a.group_size, [&](int64_t block, int64_t group, int64_t from, int64_t to) {
                Stream<format> weights(a, panel, group, from);
                const int64_t size = weight_step_bytes(format) / weights.kInputs;  // bytes for each input
                const Ahead next{weights.at + (to - from) * size, size};
                if constexpr (format == WeightFormat::f16) {  // a conversion for each tile costs less than room in L1
                    const uint16_t* w = reinterpret_cast<const uint16_t*>(weights.at);
                    tiles(a, w, panel, block, group, from, to, y, next);
                } else {
                    // Of an odd number of 4-bit inputs, one more than there is is unpacked: blocks have room for it.
                    float* put = unpacked;
                    for (int64_t k = from; k < to; k += weights.kInputs) {
                        weights.next([&](int i, int v, F w) __attribute__((always_inline)) {
                            V::store(put + i * kWeightPanel + v * W, w);
                        });
                        put += weights.kInputs * kWeightPanel;
                    }
                    tiles(a, unpacked, panel, block, group, from, to, y, next);
                }
            });
            for (int64_t row = 0; row < a.rows; ++row) store(a, row, panel, y + row * kWeightPanel);
        }
    }

    static void multiply(const WeightOnlyArgs& a, int64_t begin, int64_t end, float* scratch) {
        constexpr int64_t kFew = 2;
        const bool many_rows = a.rows > kFew;
        switch (a.format) {
            case WeightFormat::u8:
                return many_rows ? many<WeightFormat::u8>(a, begin, end, scratch)
                                 : few<WeightFormat::u8>(a, begin, end);
            case WeightFormat::u4:
                return many_rows ? many<WeightFormat::u4>(a, begin, end, scratch)
                                 : few<WeightFormat::u4>(a, begin, end);
            case WeightFormat::f16:
                return many_rows ? many<WeightFormat::f16>(a, begin, end, scratch)
                                 : few<WeightFormat::f16>(a, begin, end);
        }
    }
};

}  // namespace
}  // namespace zeropoint
