// gemm with vpdpbusd: each of 16 lanes adds four products u8 x s8 to its int32, exactly. (Not vpdpbusds, which
// saturates.) Shared by the vnni and amx kernels, which pad the channels of a tap to different multiples.
//
// A tile is some rows x 64, 32 or 16 output channels. Its sums stay in registers, from the bias to the bytes. Its rows
// are segments of equally spaced rows: a base and the distances s, 3 s and 5 s reach seven of them, so the inner loop
// needs few general registers. Where rows are not equally spaced, every segment is one row.
//   matrices     6 rows x 64: weights come as one stream
//   images       2 x 7 rows x 32: widths of 7, 14, 28, 56, 112 are cut without a rest, other ones into equal parts
//   few rows     with several sums for each result, else they would wait for each other
#pragma once

#include "kernels/gemm/epilogue_avx512.h"
#include "kernels/gemm/few_channels_vnni.h"
#include "kernels/gemm/shifted.h"

#include <type_traits>

namespace zeropoint {
namespace {

// sums[m] = the sum of all channels of all taps of row m.
inline void row_sums_vnni(const GemmArgs& a, uint32_t* sums) {
    const __m512i ones = _mm512_set1_epi8(1);
    const int64_t whole = a.channels / 64 * 64;
    const __mmask64 rest = (__mmask64{1} << (a.channels - whole)) - 1;
    for (int64_t m = 0; m < a.m; ++m) {
        __m512i sum = _mm512_setzero_si512();
        for (int64_t t = 0; t < a.tap_count; ++t) {
            const uint8_t* row = static_cast<const uint8_t*>(a.x) + a.rows[m] + a.taps[t];
            for (int64_t c = 0; c < whole; c += 64) sum = _mm512_dpbusd_epi32(sum, _mm512_loadu_si512(row + c), ones);
            sum = _mm512_dpbusd_epi32(sum, _mm512_maskz_loadu_epi8(rest, row + whole), ones);
        }
        sums[m] = static_cast<uint32_t>(_mm512_reduce_add_epi32(sum));
    }
}

// What the tiles of a call share.
struct VnniJob {
    const GemmArgs& a;
    const PanelLayout& layout;
    int64_t padded, panels, panel_size;
    const uint32_t* row_sums;  // if the weights have zero points
    Epilogue512 epilogue;

    VnniJob(const GemmArgs& args, const PanelLayout& weights, const uint32_t* sums)
        : a(args),
          layout(weights),
          padded(weights.padded(args.channels)),
          panels((args.n + kPanel - 1) / kPanel),
          panel_size(args.tap_count * padded * kPanel),
          row_sums(sums),
          epilogue(args.epilogue, args.y, args.n) {}
};

// The weights of neighbouring panels.
struct PanelStream {
    const int8_t* begin;
    int64_t step;   // bytes to the next four channels
    int64_t apart;  // bytes from panel to panel

    PanelStream(const VnniJob& job, int64_t panel) {
        const PanelLayout::Place place = job.layout.place(panel, job.panels, job.panel_size);
        begin = job.a.panels + place.begin;
        step = place.step;
        apart = job.layout.group == 1 ? job.panel_size : kWord * kPanel;
    }
    static constexpr int64_t kWord = 4;
};

// The rows of a tile: kSegments segments of kLength rows. With few sums, kChains of them for each result.
template <int kSegments, int kLength, int kPanels>
struct TileShape {
    static constexpr int kRows = kSegments * kLength, kSums = kRows * kPanels;
    static constexpr int kChains = kSums <= 4 ? 4 : kSums <= 8 ? 2 : 1;
    static_assert(kLength <= 7 && kPanels <= 4);
};

// Row k of a segment of at most seven, whose rows are s apart.
inline __attribute__((always_inline)) const uint8_t* row_of_segment(const uint8_t* base, int k, int64_t s, int64_t s3,
                                                                    int64_t s5) {
    return k == 0   ? base
           : k == 1 ? base + s
           : k == 2 ? base + 2 * s
           : k == 3 ? base + s3
           : k == 4 ? base + 4 * s
           : k == 5 ? base + s5
                    : base + 2 * s3;
}

// sum += four channels of every row times those of every panel.
template <int kSegments, int kLength, int kPanels>
inline __attribute__((always_inline)) void step_vnni(const uint8_t* const (&x)[kSegments], int64_t offset, int64_t s,
                                                     int64_t s3, int64_t s5, const int8_t* w, int64_t apart,
                                                     Sums (&sum)[kSegments * kLength][kPanels]) {
    __m512i weights[kPanels];
#pragma GCC unroll 4
    for (int j = 0; j < kPanels; ++j) weights[j] = _mm512_load_si512(w + j * apart);
#pragma GCC unroll 16
    for (int i = 0; i < kSegments * kLength; ++i) {
        const uint8_t* const at = row_of_segment(x[i / kLength] + offset, i % kLength, s, s3, s5);
        const __m512i v = _mm512_broadcastd_epi32(_mm_loadu_si32(at));
#pragma GCC unroll 4
        for (int j = 0; j < kPanels; ++j)
            sum[i][j] =
                reinterpret_cast<Sums>(_mm512_dpbusd_epi32(reinterpret_cast<__m512i>(sum[i][j]), v, weights[j]));
    }
}

// sum = bias + products, for the segments that begin with the rows `first`. kGrouped: panels stand side by side.
template <int kSegments, int kLength, int kPanels, bool kGrouped>
inline __attribute__((always_inline)) void sum_up_vnni(const VnniJob& job, const int64_t (&first)[kSegments],
                                                       int64_t panel, const PanelStream& stream,
                                                       Sums (&sum)[kSegments * kLength][kPanels]) {
    using Shape = TileShape<kSegments, kLength, kPanels>;
    constexpr int kRows = Shape::kRows, kChains = Shape::kChains;
    const GemmArgs& a = job.a;
    const auto load = [](const int32_t* from)
                          __attribute__((always_inline)) { return reinterpret_cast<Sums>(_mm512_loadu_si512(from)); };
#pragma GCC unroll 4
    for (int j = 0; j < kPanels; ++j) {
        const Sums bias = load(a.epilogue.bias + (panel + j) * kPanel);
#pragma GCC unroll 16
        for (int i = 0; i < kRows; ++i) sum[i][j] = bias;
    }
    if (job.row_sums != nullptr) {
#pragma GCC unroll 4
        for (int j = 0; j < kPanels; ++j) {
            const Sums zero_point = load(a.w_zero_point + (panel + j) * kPanel);
#pragma GCC unroll 16
            for (int i = 0; i < kRows; ++i)
                sum[i][j] -= static_cast<int>(job.row_sums[first[i / kLength] + i % kLength]) * zero_point;
        }
    }
    Sums more[kChains][kRows][kPanels] = {};  // the other chains
    const int64_t s = a.row_step, s3 = 3 * s, s5 = 5 * s, apart = kGrouped ? PanelStream::kWord * kPanel : stream.apart;
    const int64_t steps = (a.channels + 3) / 4, beyond = (job.padded / 4 - steps) * stream.step;
    const int8_t* w = stream.begin;
    for (int64_t t = 0; t < a.tap_count; ++t, w += beyond) {
        const uint8_t* x[kSegments];
#pragma GCC unroll 16
        for (int g = 0; g < kSegments; ++g) x[g] = static_cast<const uint8_t*>(a.x) + a.rows[first[g]] + a.taps[t];
        const auto advance = [&](int count) __attribute__((always_inline)) {
#pragma GCC unroll 16
            for (int g = 0; g < kSegments; ++g) {
                x[g] += 4 * count;
                // One pointer for each segment: compilers would make one for each row.
                __asm__("" : "+r"(x[g]));
            }
        };
        int64_t c = steps;
        if constexpr (kChains > 1)
            for (; c >= kChains; c -= kChains) {
#pragma GCC unroll 4
                for (int k = 0; k < kChains; ++k, w += stream.step)
                    step_vnni<kSegments, kLength, kPanels>(x, 4 * k, s, s3, s5, w, apart, k == 0 ? sum : more[k]);
                advance(kChains);
            }
        for (; c > 0; --c, w += stream.step) {
            step_vnni<kSegments, kLength, kPanels>(x, 0, s, s3, s5, w, apart, sum);
            advance(1);
        }
    }
#pragma GCC unroll 4
    for (int k = 1; k < kChains; ++k)
#pragma GCC unroll 16
        for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
            for (int j = 0; j < kPanels; ++j) sum[i][j] += more[k][i][j];
}

// `count` tiles of kPanels panels from `panel` on; `first` has the first rows of all segments.
// Not inlined: alone, the loop finds a register for every pointer.
template <int kSegments, int kLength, int kPanels, bool kGrouped>
__attribute__((noinline)) void tiles_vnni(const VnniJob& job, const int16_t* first, int64_t count, int64_t panel,
                                          const PanelStream& stream) {
    constexpr int kRows = kSegments * kLength;
    for (; count > 0; --count, first += kSegments) {
        int64_t begin[kSegments];
#pragma GCC unroll 16
        for (int g = 0; g < kSegments; ++g) begin[g] = first[g];
        Sums sum[kRows][kPanels];
        sum_up_vnni<kSegments, kLength, kPanels, kGrouped>(job, begin, panel, stream, sum);
        const int64_t* y_rows[kRows];
#pragma GCC unroll 16
        for (int i = 0; i < kRows; ++i) y_rows[i] = job.a.y_rows + begin[i / kLength] + i % kLength;
        job.epilogue.store<kRows, kPanels>(sum, panel, y_rows);
    }
}

// The rows of a call: every run cut into equal segments of at most `most` rows, which have `length` rows or one less.
// The rows of short runs, and of a last run that is shorter than the others, are single.
class RowCut {
public:
    RowCut(const GemmArgs& a, int64_t most) {
        constexpr int64_t kShortest = 4;
        const int64_t run = a.run < a.m ? a.run : a.m, parts = (run + most - 1) / most;
        length = run == a.m || run >= kShortest ? (run + parts - 1) / parts : 1;
        const int64_t long_ones = run - parts * (length - 1);
        for (int64_t m = 0; m < a.m; m += run) {
            if (length == 1 || a.m - m < run) {
                for (int64_t i = m; i < a.m && i < m + run; ++i) singles_[single_count++] = static_cast<int16_t>(i);
                continue;
            }
            int64_t i = m;
            for (int64_t part = 0; part < parts; ++part) {
                if (part < long_ones)
                    longs_[long_count++] = static_cast<int16_t>(i);
                else
                    shorts_[short_count++] = static_cast<int16_t>(i);
                i += part < long_ones ? length : length - 1;
            }
        }
    }

    const int16_t* longs() const { return longs_; }
    const int16_t* shorts() const { return shorts_; }
    const int16_t* singles() const { return singles_; }
    int64_t length = 0, long_count = 0, short_count = 0, single_count = 0;

private:
    int16_t longs_[kGemmRows], shorts_[kGemmRows], singles_[kGemmRows];
};

// Segments of kLength rows: two at a time if there are registers for their sums.
template <int kLength, int kPanels, bool kGrouped>
inline void segments_vnni(const VnniJob& job, const int16_t* first, int64_t count, int64_t panel,
                          const PanelStream& stream) {
    if constexpr (2 * kLength * kPanels <= 28) {
        if (count >= 2) tiles_vnni<2, kLength, kPanels, kGrouped>(job, first, count / 2, panel, stream);
        if (count % 2 != 0) tiles_vnni<1, kLength, kPanels, kGrouped>(job, first + count - 1, 1, panel, stream);
    } else if (count > 0) {
        tiles_vnni<1, kLength, kPanels, kGrouped>(job, first, count, panel, stream);
    }
}

template <int kPanels, bool kGrouped>
inline void segments_vnni(const VnniJob& job, int64_t length, const int16_t* first, int64_t count, int64_t panel,
                          const PanelStream& stream) {
    if (count == 0) return;
    switch (length) {
        case 1: return segments_vnni<1, kPanels, kGrouped>(job, first, count, panel, stream);
        case 2: return segments_vnni<2, kPanels, kGrouped>(job, first, count, panel, stream);
        case 3: return segments_vnni<3, kPanels, kGrouped>(job, first, count, panel, stream);
        case 4: return segments_vnni<4, kPanels, kGrouped>(job, first, count, panel, stream);
        case 5: return segments_vnni<5, kPanels, kGrouped>(job, first, count, panel, stream);
        case 6: return segments_vnni<6, kPanels, kGrouped>(job, first, count, panel, stream);
        default:
            if constexpr (kPanels < 4) return segments_vnni<7, kPanels, kGrouped>(job, first, count, panel, stream);
    }
}

// Rows anywhere.
template <int kPanels>
inline void singles_vnni(const VnniJob& job, const int16_t* first, int64_t count, int64_t panel,
                         const PanelStream& stream) {
    constexpr int kAtOnce = 6;
    if (count >= kAtOnce) tiles_vnni<kAtOnce, 1, kPanels, true>(job, first, count / kAtOnce, panel, stream);
    first += count / kAtOnce * kAtOnce;
    switch (count % kAtOnce) {
        case 1: return tiles_vnni<1, 1, kPanels, true>(job, first, 1, panel, stream);
        case 2: return tiles_vnni<2, 1, kPanels, true>(job, first, 1, panel, stream);
        case 3: return tiles_vnni<3, 1, kPanels, true>(job, first, 1, panel, stream);
        case 4: return tiles_vnni<4, 1, kPanels, true>(job, first, 1, panel, stream);
        case 5: return tiles_vnni<5, 1, kPanels, true>(job, first, 1, panel, stream);
        default: return;
    }
}

template <int kPanels>
inline void panels_vnni(const VnniJob& job, const RowCut& cut, int64_t panel) {
    const PanelStream stream(job, panel);
    segments_vnni<kPanels, true>(job, cut.length, cut.longs(), cut.long_count, panel, stream);
    segments_vnni<kPanels, true>(job, cut.length - 1, cut.shorts(), cut.short_count, panel, stream);
    singles_vnni<kPanels>(job, cut.singles(), cut.single_count, panel, stream);
}

// The panels [begin, end), if there are so few channels that it is worth it.
inline bool few_channels_vnni(const VnniJob& job, int64_t begin, int64_t end) {
    if (job.padded != (job.a.channels + 3) / 4 * 4) return false;  // its taps follow each other
    for (int64_t p = begin; p < end;) {
        const int64_t group_end = (p / job.layout.group + 1) * job.layout.group;
        const PanelStream stream(job, p);
        const int64_t taken = few_channels_vnni({job.a, job.epilogue, stream.begin, stream.step, p},
                                                (end < group_end ? end : group_end) - p);
        if (taken == 0) return false;
        p += taken;
    }
    return true;
}

// For a layout with groups of four panels.
inline void multiply_vnni(const GemmArgs& a, int64_t begin, int64_t end, const PanelLayout& layout) {
    constexpr int64_t kMatrix = 6, kImage = 7;
    uint32_t sums[kGemmRows];
    if (a.w_zero_point != nullptr) row_sums_vnni(a, sums);
    const VnniJob job(a, layout, a.w_zero_point != nullptr ? sums : nullptr);
    constexpr int64_t kRun = 8;
    const bool in_order = a.run >= a.m || a.run >= kRun;
    if (in_order && a.w_zero_point == nullptr && few_channels_vnni(job, begin, end)) return;
    // Four panels at once: for the rows of a matrix, and for single ones.
    const RowCut matrix(a, kMatrix);
    const bool wide = a.run >= a.m || matrix.length == 1;
    // Others by two, or one where a group ends.
    const auto narrow = [&](int64_t p, int64_t past) {
        if (p >= past) return;
        const RowCut image(a, kImage);
        for (int64_t taken; p < past; p += taken) {
            taken = past - p >= 2 && (p + 1) % layout.group != 0 ? 2 : 1;
            if (taken == 2)
                panels_vnni<2>(job, image, p);
            else
                panels_vnni<1>(job, image, p);
        }
    };
    int64_t first = (begin + layout.group - 1) / layout.group * layout.group;
    if (!wide || end - first < layout.group) return narrow(begin, end);
    narrow(begin, first);
    for (; end - first >= layout.group; first += layout.group) panels_vnni<4>(job, matrix, first);
    narrow(first, end);
}

// At most `kFewRows` rows, for a layout of single panels.
constexpr int64_t kFewRows = 4;
inline void few_rows_vnni(const GemmArgs& a, int64_t begin, int64_t end, const PanelLayout& layout) {
    uint32_t sums[kFewRows];
    if (a.w_zero_point != nullptr) row_sums_vnni(a, sums);
    const VnniJob job(a, layout, a.w_zero_point != nullptr ? sums : nullptr);
    constexpr int16_t kRows[] = {0, 1, 2, 3};
    const auto run = [&](auto panels, int64_t p) {
        constexpr int kPanels = decltype(panels)::value;
        const PanelStream stream(job, p);
        switch (a.m) {
            case 1: return tiles_vnni<1, 1, kPanels, false>(job, kRows, 1, p, stream);
            case 2: return tiles_vnni<2, 1, kPanels, false>(job, kRows, 1, p, stream);
            case 3: return tiles_vnni<3, 1, kPanels, false>(job, kRows, 1, p, stream);
            case 4: return tiles_vnni<4, 1, kPanels, false>(job, kRows, 1, p, stream);
            default: return;
        }
    };
    int64_t p = begin;
    for (; end - p >= 4; p += 4) run(std::integral_constant<int, 4>(), p);
    for (; end - p >= 2; p += 2) run(std::integral_constant<int, 2>(), p);
    if (p < end) run(std::integral_constant<int, 1>(), p);
}

}  // namespace
}  // namespace zeropoint
