#include "kernels/interleave/scalar.h"

#include <immintrin.h>

namespace zeropoint {
namespace {

constexpr int64_t kBytes = 16;

__m128i load(const uint8_t* from) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)); }
void store(uint8_t* to, __m128i v) { _mm_storeu_si128(reinterpret_cast<__m128i*>(to), v); }

// For a vector of the result and a plane: which byte of the plane each of its bytes is, or none.
struct OrderOfThree {
    alignas(16) int8_t bytes[3][3][kBytes] = {};

    constexpr OrderOfThree() {
        for (int v = 0; v < 3; ++v)
            for (int p = 0; p < 3; ++p)
                for (int k = 0; k < kBytes; ++k) {
                    const int at = static_cast<int>(kBytes) * v + k;
                    bytes[v][p][k] = static_cast<int8_t>(at % 3 == p ? at / 3 : -1);
                }
    }
};
constexpr OrderOfThree kOrderOfThree;

// Every byte of the result is a byte of one plane: 3 x 3 shuffles, which leave zeros elsewhere.
int64_t three(const InterleaveArgs& a, int64_t i, int64_t end) {
    __m128i order[3][3];
    for (int v = 0; v < 3; ++v)
        for (int p = 0; p < 3; ++p)
            order[v][p] = _mm_load_si128(reinterpret_cast<const __m128i*>(kOrderOfThree.bytes[v][p]));
    for (; i + kBytes <= end; i += kBytes) {
        const __m128i x = load(a.x + i), y = load(a.x + a.stride + i), z = load(a.x + 2 * a.stride + i);
        for (int v = 0; v < 3; ++v)
            store(a.y + 3 * i + v * kBytes,
                  _mm_or_si128(_mm_or_si128(_mm_shuffle_epi8(x, order[v][0]), _mm_shuffle_epi8(y, order[v][1])),
                               _mm_shuffle_epi8(z, order[v][2])));
    }
    return i;
}

int64_t two(const InterleaveArgs& a, int64_t i, int64_t end) {
    for (; i + kBytes <= end; i += kBytes) {
        const __m128i x = load(a.x + i), y = load(a.x + a.stride + i);
        store(a.y + 2 * i, _mm_unpacklo_epi8(x, y));
        store(a.y + 2 * i + kBytes, _mm_unpackhi_epi8(x, y));
    }
    return i;
}

int64_t four(const InterleaveArgs& a, int64_t i, int64_t end) {
    for (; i + kBytes <= end; i += kBytes) {
        const __m128i x = load(a.x + i), y = load(a.x + a.stride + i);
        const __m128i z = load(a.x + 2 * a.stride + i), w = load(a.x + 3 * a.stride + i);
        const __m128i low = _mm_unpacklo_epi8(x, y), high = _mm_unpackhi_epi8(x, y);
        const __m128i low2 = _mm_unpacklo_epi8(z, w), high2 = _mm_unpackhi_epi8(z, w);
        store(a.y + 4 * i, _mm_unpacklo_epi16(low, low2));
        store(a.y + 4 * i + kBytes, _mm_unpackhi_epi16(low, low2));
        store(a.y + 4 * i + 2 * kBytes, _mm_unpacklo_epi16(high, high2));
        store(a.y + 4 * i + 3 * kBytes, _mm_unpackhi_epi16(high, high2));
    }
    return i;
}

// 16 planes from p on, at 16 places from i on: a transposition in four rounds, each of which interleaves the first half
// of the rows with the second.
void sixteen(const InterleaveArgs& a, int64_t p, int64_t i) {
    __m128i rows[kBytes], next[kBytes];
    for (int k = 0; k < kBytes; ++k) rows[k] = load(a.x + (p + k) * a.stride + i);
    for (int round = 0; round < 4; ++round) {
        for (int k = 0; k < kBytes / 2; ++k) {
            next[2 * k] = _mm_unpacklo_epi8(rows[k], rows[k + kBytes / 2]);
            next[2 * k + 1] = _mm_unpackhi_epi8(rows[k], rows[k + kBytes / 2]);
        }
        for (int k = 0; k < kBytes; ++k) rows[k] = next[k];
    }
    for (int k = 0; k < kBytes; ++k) store(a.y + (i + k) * a.planes + p, rows[k]);
}

}  // namespace

void interleave_avx2(const InterleaveArgs& a, int64_t begin, int64_t end) {
    int64_t i = begin, p = 0;
    if (a.planes == 2) i = two(a, i, end);
    if (a.planes == 3) i = three(a, i, end);
    if (a.planes == 4) i = four(a, i, end);
    if (a.planes >= kBytes) {
        const int64_t blocks = (end - begin) / kBytes;
        for (; p + kBytes <= a.planes; p += kBytes)
            for (int64_t block = 0; block < blocks; ++block) sixteen(a, p, begin + block * kBytes);
        i = begin + blocks * kBytes;
        interleave_planes<0>(a, begin, i, p, a.planes);
    }
    interleave_planes<0>(a, i, end, 0, a.planes);
}

}  // namespace zeropoint
