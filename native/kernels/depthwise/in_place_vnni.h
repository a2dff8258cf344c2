// vpdpbusd on four neighbouring pixels. Their bytes are interleaved, so that a vector has four taps of each of its
// channels, and it serves every output that reads some of these pixels, with weights for its place:
//
//   pixels 0 1 2 3:  the first output with (k0 k1 k2 0), the next one, at stride 1, with (0 k0 k1 k2)
//
// A tile is two outputs side by side, of one line or of two, whose kernels share lines. Interleaving works within
// 128-bit lanes: vector v of four holds the channels 4 v to 4 v + 3 of each 16. Weights, biases and multipliers are
// stored so, and packing the results to bytes puts them in order again.
#pragma once

#include "kernels/depthwise/interleaved_pixels.h"
#include "kernels/gemm/epilogue.h"
#include "kernels/simd/avx512.h"

#include <cstring>

namespace zeropoint {
namespace {

constexpr int kVectors = 4;  // of sums, for the channels of a block

// Blocks of 64, 32 and 16 channels: vectors of that many bytes. Sums are vectors of the language: of the other kind,
// GCC 12 keeps them in memory.
struct Block64 {
    static constexpr int kChannels = 64;
    using I = __m512i;
    using F = __m512;
    typedef int Sum __attribute__((vector_size(64)));
    typedef __mmask64 Mask;
    static constexpr Mask kAll = ~Mask{0};

    static I load(const void* p, Mask) { return _mm512_loadu_si512(p); }
    static void store(void* p, I a, Mask) { _mm512_storeu_si512(p, a); }
    static I set(uint8_t x) { return _mm512_set1_epi8(static_cast<char>(x)); }
    static I set_words(int32_t x) { return _mm512_set1_epi16(static_cast<int16_t>(x)); }
    static F set(float x) { return _mm512_set1_ps(x); }
    static F load_floats(const float* p) { return _mm512_load_ps(p); }
    static Sum load_sum(const int32_t* p) { return (Sum)_mm512_load_si512(p); }
    static I flip(I a, I bits) { return _mm512_xor_si512(a, bits); }
    static I low_bytes(I a, I b) { return _mm512_unpacklo_epi8(a, b); }
    static I high_bytes(I a, I b) { return _mm512_unpackhi_epi8(a, b); }
    static I low_words(I a, I b) { return _mm512_unpacklo_epi16(a, b); }
    static I high_words(I a, I b) { return _mm512_unpackhi_epi16(a, b); }
    static Sum dot(Sum sum, I x, const uint8_t* w) {
        return (Sum)_mm512_dpbusd_epi32((I)sum, x, _mm512_loadu_si512(w));
    }
    static I rounded(Sum sum, F multiplier, F bias, F high) {
        const F v = _mm512_add_ps(_mm512_mul_ps(_mm512_cvtepi32_ps((I)sum), multiplier), bias);
        return _mm512_cvtps_epi32(_mm512_min_ps(v, high));
    }
    static I rounded(Sum sum, F multiplier, F bias) {
        return _mm512_cvtps_epi32(_mm512_add_ps(_mm512_mul_ps(_mm512_cvtepi32_ps((I)sum), multiplier), bias));
    }
    static I to_words(I a, I b, I zero_point) { return _mm512_adds_epi16(_mm512_packs_epi32(a, b), zero_point); }
    static I to_bytes(I a, I b, I low) { return _mm512_max_epu8(_mm512_packus_epi16(a, b), low); }
};

struct Block32 {
    static constexpr int kChannels = 32;
    using I = __m256i;
    using F = __m256;
    typedef int Sum __attribute__((vector_size(32)));
    typedef __mmask32 Mask;
    static constexpr Mask kAll = ~Mask{0};

    static I load(const void* p, Mask) { return _mm256_loadu_si256(static_cast<const I*>(p)); }
    static void store(void* p, I a, Mask) { _mm256_storeu_si256(static_cast<I*>(p), a); }
    static I set(uint8_t x) { return _mm256_set1_epi8(static_cast<char>(x)); }
    static I set_words(int32_t x) { return _mm256_set1_epi16(static_cast<int16_t>(x)); }
    static F set(float x) { return _mm256_set1_ps(x); }
    static F load_floats(const float* p) { return _mm256_load_ps(p); }
    static Sum load_sum(const int32_t* p) { return (Sum)_mm256_load_si256(reinterpret_cast<const I*>(p)); }
    static I flip(I a, I bits) { return _mm256_xor_si256(a, bits); }
    static I low_bytes(I a, I b) { return _mm256_unpacklo_epi8(a, b); }
    static I high_bytes(I a, I b) { return _mm256_unpackhi_epi8(a, b); }
    static I low_words(I a, I b) { return _mm256_unpacklo_epi16(a, b); }
    static I high_words(I a, I b) { return _mm256_unpackhi_epi16(a, b); }
    static Sum dot(Sum sum, I x, const uint8_t* w) { return (Sum)_mm256_dpbusd_epi32((I)sum, x, load(w, kAll)); }
    static I rounded(Sum sum, F multiplier, F bias, F high) {
        const F v = _mm256_add_ps(_mm256_mul_ps(_mm256_cvtepi32_ps((I)sum), multiplier), bias);
        return _mm256_cvtps_epi32(_mm256_min_ps(v, high));
    }
    static I rounded(Sum sum, F multiplier, F bias) {
        return _mm256_cvtps_epi32(_mm256_add_ps(_mm256_mul_ps(_mm256_cvtepi32_ps((I)sum), multiplier), bias));
    }
    static I to_words(I a, I b, I zero_point) { return _mm256_adds_epi16(_mm256_packs_epi32(a, b), zero_point); }
    static I to_bytes(I a, I b, I low) { return _mm256_max_epu8(_mm256_packus_epi16(a, b), low); }
};

// The last block may have fewer channels: only these are read and written.
struct Block16 {
    static constexpr int kChannels = 16;
    using I = __m128i;
    using F = __m128;
    typedef int Sum __attribute__((vector_size(16)));
    typedef __mmask16 Mask;
    static constexpr Mask kAll = 0xFFFF;

    static I load(const void* p, Mask mask) { return _mm_maskz_loadu_epi8(mask, p); }
    static void store(void* p, I a, Mask mask) {
        if (mask == kAll)  // faster than through a mask
            _mm_storeu_si128(static_cast<I*>(p), a);
        else
            _mm_mask_storeu_epi8(p, mask, a);
    }
    static I set(uint8_t x) { return _mm_set1_epi8(static_cast<char>(x)); }
    static I set_words(int32_t x) { return _mm_set1_epi16(static_cast<int16_t>(x)); }
    static F set(float x) { return _mm_set1_ps(x); }
    static F load_floats(const float* p) { return _mm_load_ps(p); }
    static Sum load_sum(const int32_t* p) { return (Sum)_mm_load_si128(reinterpret_cast<const I*>(p)); }
    static I flip(I a, I bits) { return _mm_xor_si128(a, bits); }
    static I low_bytes(I a, I b) { return _mm_unpacklo_epi8(a, b); }
    static I high_bytes(I a, I b) { return _mm_unpackhi_epi8(a, b); }
    static I low_words(I a, I b) { return _mm_unpacklo_epi16(a, b); }
    static I high_words(I a, I b) { return _mm_unpackhi_epi16(a, b); }
    static Sum dot(Sum sum, I x, const uint8_t* w) {
        return (Sum)_mm_dpbusd_epi32((I)sum, x, _mm_loadu_si128(reinterpret_cast<const I*>(w)));
    }
    static I rounded(Sum sum, F multiplier, F bias, F high) {
        const F v = _mm_add_ps(_mm_mul_ps(_mm_cvtepi32_ps((I)sum), multiplier), bias);
        return _mm_cvtps_epi32(_mm_min_ps(v, high));
    }
    static I rounded(Sum sum, F multiplier, F bias) {
        return _mm_cvtps_epi32(_mm_add_ps(_mm_mul_ps(_mm_cvtepi32_ps((I)sum), multiplier), bias));
    }
    static I to_words(I a, I b, I zero_point) { return _mm_adds_epi16(_mm_packs_epi32(a, b), zero_point); }
    static I to_bytes(I a, I b, I low) { return _mm_max_epu8(_mm_packus_epi16(a, b), low); }
};

// Where channel c of a block with `lanes` lanes of 16 channels stands among its sums.
inline int64_t place_in_block(int64_t c, int64_t lanes) { return (c % 16 / 4 * lanes + c / 16) * 4 + c % 4; }

// What a block needs of an epilogue, in the order of its sums.
template <class B>
struct BlockEpilogue {
    alignas(64) int32_t bias[B::kChannels];
    alignas(64) float multiplier[B::kChannels];
    alignas(64) float float_bias[B::kChannels];
    bool direct;  // the bytes come from registers; else the sums, without bias, go through memory

    BlockEpilogue(const Epilogue& e, int64_t first) {
        direct = e.type != OutputType::f32 && e.z == nullptr && !e.leaky() && e.after == nullptr;
        constexpr int64_t kLanes = B::kChannels / 16;
        for (int64_t c = 0; c < B::kChannels; c += 4) {
            const int64_t to = place_in_block(c, kLanes);
            std::memcpy(bias + to, e.bias + first + c, 16);
            std::memcpy(multiplier + to, e.multiplier + first + c, 16);
            std::memcpy(float_bias + to, e.float_bias + first + c, 16);
        }
        if (!direct) std::memset(bias, 0, sizeof bias);
    }
};

// One block of channels. kPlain: nothing is signed, so that no bit is flipped, and the upper bound of the output is
// that of bytes, of results that fit an int32, so that it need not be taken.
template <class B, int kWidth, int kStride, bool kPlain>
class InPlaceBlock {
public:
    static bool is_plain(const InPlaceArgs& a) {
        const Epilogue& e = a.epilogue;
        return !a.activation.is_signed && e.bounded && e.type == OutputType::u8 && e.hi >= 255;
    }

    InPlaceBlock(const InPlaceArgs& a, int64_t first)
        : a_(a),
          e_(a.epilogue),
          first_(first),
          left_(a.channels - first < B::kChannels ? a.channels - first : B::kChannels),
          mask_(left_ == B::kChannels ? B::kAll : static_cast<typename B::Mask>((uint64_t{1} << left_) - 1)),
          block_(a.epilogue, first),
          w_(a.w + first * a.shape.rows * P::kSets * kQuad) {}

    void run() const {
        int64_t line = 0;
        for (; line + 2 <= a_.out_lines; line += 2) run_lines<2>(line);
        if (line < a_.out_lines) run_lines<1>(line);
    }

private:
    using P = Places<kWidth, kStride>;
    using I = typename B::I;
    using F = typename B::F;
    using Sum = typename B::Sum;
    static constexpr int64_t kRow = P::kSets * kVectors * B::kChannels;  // bytes of weights of a kernel row

    template <int kLines>
    struct Sums {
        Sum of[kLines][kColumns][kVectors];
    };

    // The weights of a kernel row of the first output line, and of the second, times the pixels from `x` on.
    template <int kLines, bool kFirst, bool kSecond>
    static inline __attribute__((always_inline)) void add_line(const uint8_t* x, int64_t pixel, typename B::Mask mask,
                                                               I flip, const uint8_t* w, const uint8_t* w_second,
                                                               Sums<kLines>& sums) {
#pragma GCC unroll 3
        for (int q = 0; q < P::kQuads; ++q) {
            // Where there is no pixel the weights are zero, and any will do.
            const auto at = [&](int i) {
                const int p = q * kQuad + i < P::kPixels ? q * kQuad + i : P::kPixels - 1;
                const I bytes = B::load(x + p * pixel, mask);
                return kPlain ? bytes : B::flip(bytes, flip);
            };
            const I p0 = at(0), p1 = at(1), p2 = at(2), p3 = at(3);
            const I low = B::low_bytes(p0, p1), high = B::high_bytes(p0, p1);
            const I low2 = B::low_bytes(p2, p3), high2 = B::high_bytes(p2, p3);
            const I quads[kVectors] = {B::low_words(low, low2), B::high_words(low, low2), B::low_words(high, high2),
                                       B::high_words(high, high2)};
#pragma GCC unroll 2
            for (int column = 0; column < kColumns; ++column) {
                if (!P::reads(q, column)) continue;
                const int64_t set = P::set(q, column) * kVectors * B::kChannels;
#pragma GCC unroll 4
                for (int v = 0; v < kVectors; ++v) {
                    const int64_t from = set + v * B::kChannels;
                    Sum(&first)[kColumns][kVectors] = sums.of[0];
                    Sum(&second)[kColumns][kVectors] = sums.of[kLines - 1];
                    if (kFirst) first[column][v] = B::dot(first[column][v], quads[v], w + from);
                    if (kSecond) second[column][v] = B::dot(second[column][v], quads[v], w_second + from);
                }
            }
        }
    }

    // A tile whose pixels begin `offset` bytes into the lines, `pixel` bytes from one to the next.
    template <int kLines>
    inline __attribute__((always_inline)) void sum_up(const uint8_t* const* lines, int64_t offset, int64_t pixel,
                                                      I flip, Sums<kLines>& sums) const {
#pragma GCC unroll 2
        for (int line = 0; line < kLines; ++line)
#pragma GCC unroll 2
            for (int column = 0; column < kColumns; ++column)
#pragma GCC unroll 4
                for (int v = 0; v < kVectors; ++v)
                    sums.of[line][column][v] = B::load_sum(block_.bias + v * B::kChannels / 4);
        const int64_t rows = a_.shape.rows, step = kLines == 2 ? a_.shape.stride_h : rows;
        const auto mask = mask_;
        const uint8_t* const w = w_;
        int64_t i = 0;
        for (; i < rows && i < step; ++i)
            add_line<kLines, true, false>(lines[i] + offset, pixel, mask, flip, w + i * kRow, nullptr, sums);
        if constexpr (kLines == 2) {
            for (; i < rows; ++i)
                add_line<2, true, true>(lines[i] + offset, pixel, mask, flip, w + i * kRow, w + (i - step) * kRow,
                                        sums);
            for (i = step > rows ? step : rows; i < step + rows; ++i)
                add_line<2, false, true>(lines[i] + offset, pixel, mask, flip, nullptr, w + (i - step) * kRow, sums);
        }
    }

    struct Finish {
        F high;
        I zero_point, low, flip;

        explicit Finish(const Epilogue& e) {
            // Signed results are those of unsigned ones plus 128.
            const int32_t shift = e.type == OutputType::s8 ? 128 : 0;
            high = B::set(static_cast<float>(e.hi - e.zero_point));
            zero_point = B::set_words(e.zero_point + shift);
            low = B::set(static_cast<uint8_t>(e.lo + shift));
            flip = B::set(static_cast<uint8_t>(shift));
        }
    };

    inline __attribute__((always_inline)) I to_bytes(const Sum (&sums)[kVectors], const Finish& finish) const {
        I v[kVectors];
#pragma GCC unroll 4
        for (int i = 0; i < kVectors; ++i) {
            const F multiplier = B::load_floats(block_.multiplier + i * B::kChannels / 4),
                    bias = B::load_floats(block_.float_bias + i * B::kChannels / 4);
            v[i] = kPlain ? B::rounded(sums[i], multiplier, bias) : B::rounded(sums[i], multiplier, bias, finish.high);
        }
        const I low = B::to_words(v[0], v[1], finish.zero_point), high = B::to_words(v[2], v[3], finish.zero_point);
        const I bytes = B::to_bytes(low, high, finish.low);
        return kPlain ? bytes : B::flip(bytes, finish.flip);
    }

    // The other epilogues.
    __attribute__((noinline)) void through_memory(const int32_t* sums, int64_t y) const {
        int32_t acc[B::kChannels];
        constexpr int64_t kLanes = B::kChannels / 16;
        for (int64_t c = 0; c < B::kChannels; c += 4) std::memcpy(acc + c, sums + place_in_block(c, kLanes), 16);
        const int64_t panel = first_ / kPanel, row = y;
        for (int64_t p = 0; p * kPanel < left_; ++p)
            PanelEpilogue<Avx512>(e_, a_.y, panel + p, left_ - p * kPanel)(acc + p * kPanel, 1, &row);
    }

    // `columns`: how many of a tile's outputs side by side there are.
    template <int kLines>
    inline __attribute__((always_inline)) void store(const Sums<kLines>& sums, const Finish& finish, int64_t y,
                                                     int columns) const {
        const int64_t pixel = a_.channels, y_line = a_.out_width * pixel;
        if (block_.direct) {
            uint8_t* const bytes = static_cast<uint8_t*>(a_.y) + first_ + y;
#pragma GCC unroll 2
            for (int line = 0; line < kLines; ++line) {
                B::store(bytes + line * y_line, to_bytes(sums.of[line][0], finish), mask_);
                if (columns == kColumns)
                    B::store(bytes + line * y_line + pixel, to_bytes(sums.of[line][1], finish), mask_);
            }
            return;
        }
        alignas(64) int32_t kept[kLines][kColumns][B::kChannels];
        std::memcpy(kept, &sums, sizeof kept);
        for (int line = 0; line < kLines; ++line)
            for (int column = 0; column < columns; ++column)
                through_memory(kept[line][column], y + line * y_line + column * pixel);
    }

    // A tile that reads beyond the sides: its pixels are copied.
    template <int kLines>
    __attribute__((noinline)) void at_side(const uint8_t* const* lines, int64_t tile, int64_t y) const {
        alignas(64) uint8_t patch[kMostLines][P::kPixels * B::kChannels];
        const uint8_t* copies[kMostLines];
        const I zero = B::set(static_cast<uint8_t>(a_.activation.zero_point));
        const int64_t begin = tile * kColumns * kStride - a_.left;
        const int64_t count = a_.shape.rows + (kLines - 1) * a_.shape.stride_h;
        for (int64_t i = 0; i < count; ++i) {
            copies[i] = patch[i];
            for (int64_t p = 0; p < P::kPixels; ++p) {
                const int64_t at = begin + p;
                const bool inside = at >= 0 && at < a_.width;
                B::store(patch[i] + p * B::kChannels,
                         inside ? B::load(lines[i] + at * a_.channels + first_, mask_) : zero, B::kAll);
            }
        }
        Sums<kLines> sums;
        sum_up<kLines>(copies, 0, B::kChannels, flip(), sums);
        const int64_t left = a_.out_width - tile * kColumns;
        store<kLines>(sums, Finish(e_), y + tile * kColumns * a_.channels, left < kColumns ? 1 : kColumns);
    }

    // The tiles of one or two lines of the output.
    template <int kLines>
    void run_lines(int64_t line) const {
        const uint8_t* const* const lines = a_.lines + line * a_.shape.stride_h;
        const int64_t y = a_.out + line * a_.out_width * a_.channels, pixel = a_.channels;
        const int64_t tiles = (a_.out_width + kColumns - 1) / kColumns, step = kColumns * kStride;
        // Those that read only pixels that are there, and have all outputs.
        const int64_t begin = min((a_.left + step - 1) / step, tiles);
        const int64_t room = a_.width + a_.left - P::kPixels;
        const int64_t end = max(begin, min(room < 0 ? 0 : room / step + 1, a_.out_width / kColumns));
        for (int64_t tile = 0; tile < begin; ++tile) at_side<kLines>(lines, tile, y);
        const Finish finish(e_);
        const I bits = flip();
        for (int64_t tile = begin; tile < end; ++tile) {
            Sums<kLines> sums;
            sum_up<kLines>(lines, (tile * step - a_.left) * pixel + first_, pixel, bits, sums);
            store<kLines>(sums, finish, y + tile * kColumns * pixel, kColumns);
        }
        for (int64_t tile = end; tile < tiles; ++tile) at_side<kLines>(lines, tile, y);
    }

    I flip() const { return B::set(a_.activation.is_signed ? uint8_t{0x80} : uint8_t{0}); }
    static int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }
    static int64_t max(int64_t a, int64_t b) { return a > b ? a : b; }

    const InPlaceArgs& a_;
    const Epilogue& e_;
    const int64_t first_, left_;  // channels: the first, and how many there are
    const typename B::Mask mask_;
    const BlockEpilogue<B> block_;
    const uint8_t* const w_;
};

template <int kWidth, int kStride>
struct InPlaceVnni {
    using P = Places<kWidth, kStride>;

    static size_t packed_bytes(int64_t rows, int64_t channels) {
        return static_cast<size_t>((channels + kPanel - 1) / kPanel * kPanel * rows * P::kSets * kQuad);
    }

    static void pack(int64_t rows, int64_t channels, const int8_t* w, uint8_t* to) {
        for_blocks(channels, 0, channels, [&](auto block, int64_t first) {
            constexpr int64_t kChannels = decltype(block)::kChannels;
            for (int64_t c = 0; c < kChannels && first + c < channels; ++c)
                for (int64_t i = 0; i < rows; ++i)
                    for (int q = 0; q < P::kQuads; ++q)
                        for (int column = 0; column < kColumns; ++column)
                            for (int k = 0; k < kQuad && P::reads(q, column); ++k) {
                                const int at = P::first(q, column) + k;
                                const int64_t set = i * P::kSets + P::set(q, column);
                                const int64_t byte = place_in_block(c, kChannels / 16) * kQuad + k;
                                if (at >= 0 && at < kWidth)
                                    to[first * rows * P::kSets * kQuad + set * kVectors * kChannels + byte] =
                                        static_cast<uint8_t>(w[((first + c) * rows + i) * kWidth + at]);
                            }
        });
    }

    static void multiply(const InPlaceArgs& a, int64_t begin, int64_t end) {
        for_blocks(a.channels, begin * kInPlaceUnit, end * kInPlaceUnit, [&](auto block, int64_t first) {
            using B = decltype(block);
            if (InPlaceBlock<B, kWidth, kStride, true>::is_plain(a))
                InPlaceBlock<B, kWidth, kStride, true>(a, first).run();
            else
                InPlaceBlock<B, kWidth, kStride, false>(a, first).run();
        });
    }

private:
    // Calls each(Block(), first channel) for the blocks of the channels [begin, end).
    template <class Each>
    static void for_blocks(int64_t channels, int64_t begin, int64_t end, const Each& each) {
        int64_t c = begin;
        if (end > channels) end = channels;
        for (; c + 64 <= end; c += 64) each(Block64(), c);
        if (c + 32 <= end) {
            each(Block32(), c);
            c += 32;
        }
        for (; c < end; c += 16) each(Block16(), c);
    }
};

// Calls each(InPlaceVnni<...>()) for the shape, if there is one.
template <class Each>
inline bool for_in_place(const InPlaceShape& s, const Each& each) {
    if (s.rows < 1 || s.rows > kMostRows || s.stride_h < 1 || s.stride_h > kMostLines - kMostRows) return false;
    switch (s.columns * 10 + s.stride) {
        case 31: return each(InPlaceVnni<3, 1>()), true;
        case 32: return each(InPlaceVnni<3, 2>()), true;
        case 51: return each(InPlaceVnni<5, 1>()), true;
        case 52: return each(InPlaceVnni<5, 2>()), true;
        case 71: return each(InPlaceVnni<7, 1>()), true;
        case 72: return each(InPlaceVnni<7, 2>()), true;
        default: return false;
    }
}

inline const InPlaceKernel& in_place_vnni() {
    static const InPlaceKernel kernel = {
        [](const InPlaceShape& s) { return for_in_place(s, [](auto) {}); },
        [](const InPlaceShape& s, int64_t channels) {
            size_t bytes = 0;
            for_in_place(s, [&](auto k) { bytes = k.packed_bytes(s.rows, channels); });
            return bytes;
        },
        [](const InPlaceShape& s, int64_t channels, const int8_t* w, uint8_t* to) {
            for_in_place(s, [&](auto k) { k.pack(s.rows, channels, w, to); });
        },
        [](const InPlaceArgs& a, int64_t begin, int64_t end) {
            for_in_place(a.shape, [&](auto k) { k.multiply(a, begin, end); });
        },
    };
    return kernel;
}

}  // namespace
}  // namespace zeropoint
