#include "kernels/group_gemm/prepare.h"

#include <immintrin.h>

#include <algorithm>

namespace zeropoint {
namespace {

inline __m256i four_bytes(const int8_t* p) {
    int32_t word;
    std::memcpy(&word, p, sizeof word);
    return _mm256_set1_epi32(word);
}
inline __m256i bytes_at(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
inline __m256 halves(const uint16_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

// Eight outputs, 32 inputs. Rows are t words apart.
template <int kBits, int kRows>
inline void add_unit(const uint8_t* w, const int8_t* q, int64_t t, __m256i* sums) {
    const __m256i ones = _mm256_set1_epi16(1);
    if constexpr (kBits == 8) {
        for (int j = 0; j < 8; ++j) {
            const __m256i line = _mm256_xor_si256(bytes_at(w + j * 64), _mm256_set1_epi8(-128));
            const __m256i size = _mm256_abs_epi8(line);
            for (int r = 0; r < kRows; ++r) {
                // 2 * 128 * 127 fits in 16 bits.
                const __m256i x = _mm256_sign_epi8(four_bytes(q + (j * t + r) * 4), line);
                sums[r] = _mm256_add_epi32(sums[r], _mm256_madd_epi16(_mm256_maddubs_epi16(size, x), ones));
            }
        }
    } else {
        const __m256i low = _mm256_set1_epi8(15);
        __m256i words[kRows];
        for (__m256i& part : words) part = _mm256_setzero_si256();
        for (int j = 0; j < 8; ++j) {
            __m256i line = bytes_at(w + j / 2 * 64);
            line = _mm256_and_si256(j % 2 == 0 ? line : _mm256_srli_epi16(line, 4), low);
            // 8 * 2 * 15 * 127 fits in 16 bits.
            for (int r = 0; r < kRows; ++r)
                words[r] = _mm256_add_epi16(words[r], _mm256_maddubs_epi16(line, four_bytes(q + (j * t + r) * 4)));
        }
        for (int r = 0; r < kRows; ++r) sums[r] = _mm256_add_epi32(sums[r], _mm256_madd_epi16(words[r], ones));
    }
}

inline void store(const GroupGemmArgs& a, int64_t row, int64_t n, __m256 y) {
    const int64_t left = std::min<int64_t>(8, a.outputs - n);
    if (left <= 0) return;
    alignas(32) float values[8];
    _mm256_store_ps(values, y);
    const int64_t place = row * a.outputs + n;
    for (int64_t i = 0; i < left; ++i) {
        float value = values[i];
        if (a.bias != nullptr) value += a.bias[n + i];
        if (a.residual != nullptr) value += a.residual[place + i];
        a.y[place + i] = value;
    }
}

// kRows rows of a tile of t, from r on, and one panel.
template <int kBits, bool kMinimum, int kRows>
void multiply_rows(const GroupGemmArgs& a, int64_t panel, int64_t first, int64_t t, int64_t row) {
    constexpr int64_t kBytes = group_unit_bytes(kBits);
    // 8-bit weights are made signed on the way.
    constexpr int32_t kZero = kMinimum ? (kBits == 8 ? -128 : 0) : kBits == 8 ? 0 : 8;
    const int64_t units = a.group / kGroupUnit;
    const uint8_t* w = a.weights + panel * a.groups * units * kBytes;
    const int8_t* q = a.x.q + first * a.inputs() + row * 4;
    __m256 y[2][kRows];
    for (auto& half : y)
        for (__m256& part : half) part = _mm256_setzero_ps();
    for (int64_t g = 0; g < a.groups; ++g) {
        const int64_t at = first * a.groups + g * t + row, parameter = (panel * a.groups + g) * kGroupPanel;
        __m256i sums[2][kRows];
        for (auto& half : sums)
            for (int r = 0; r < kRows; ++r) half[r] = _mm256_set1_epi32(-kZero * a.x.sum[at + r]);
        for (int64_t u = 0; u < units; ++u) {
            for (int half = 0; half < 2; ++half) add_unit<kBits, kRows>(w + half * 32, q, t, sums[half]);
            w += kBytes;
            q += t * kGroupUnit;
        }
        for (int half = 0; half < 2; ++half) {
            const __m256 d = halves(a.scale + parameter + half * 8);
            for (int r = 0; r < kRows; ++r) {
                const __m256 p = _mm256_mul_ps(_mm256_cvtepi32_ps(sums[half][r]), _mm256_set1_ps(a.x.scale[at + r]));
                y[half][r] = _mm256_fmadd_ps(p, d, y[half][r]);
            }
            if constexpr (kMinimum) {
                const __m256 m = halves(a.minimum + parameter + half * 8);
                for (int r = 0; r < kRows; ++r) {
                    const float part = a.x.scale[at + r] * static_cast<float>(a.x.sum[at + r]);
                    y[half][r] = _mm256_fmadd_ps(_mm256_set1_ps(part), m, y[half][r]);
                }
            }
        }
    }
    for (int half = 0; half < 2; ++half)
        for (int r = 0; r < kRows; ++r) store(a, first + row + r, panel * kGroupPanel + half * 8, y[half][r]);
}

template <int kBits, bool kMinimum>
struct Panels {
    static void multiply(const GroupGemmArgs& a, int64_t begin, int64_t end) {
        for (int64_t panel = begin; panel < end; ++panel)
            for (int64_t first = 0; first < a.rows; first += kGroupTile) {
                const int64_t t = std::min(kGroupTile, a.rows - first);
                int64_t row = 0;
                for (; row + 2 <= t; row += 2) multiply_rows<kBits, kMinimum, 2>(a, panel, first, t, row);
                if (row < t) multiply_rows<kBits, kMinimum, 1>(a, panel, first, t, row);
            }
    }
};

}  // namespace

const GroupGemmKernel& group_gemm_avx2() {
    static const GroupGemmKernel kernel{&prepare_group_rows, &multiply_as<Panels>};
    return kernel;
}

}  // namespace zeropoint
