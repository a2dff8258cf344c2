#include "kernels/group_gemm/prepare.h"

#include <immintrin.h>

#include <algorithm>

namespace zeropoint {
namespace {

constexpr int64_t kAhead = 8192;  // bytes of weights that are asked for before they are needed

inline __m512i line_at(const uint8_t* p) { return _mm512_loadu_si512(p); }
inline __m512i four_bytes(const int8_t* p) {
    int32_t word;
    std::memcpy(&word, p, sizeof word);
    return _mm512_set1_epi32(word);
}
inline __m512 halves(const uint16_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

template <int kBits, int kRows>
inline void add_unit(const uint8_t* w, const int8_t* q, __m512i* sums) {
    const __m512i low = _mm512_set1_epi8(15);
    for (int j = 0; j < 8; ++j) {
        __m512i line;
        if constexpr (kBits == 8) {
            line = line_at(w + j * 64);
        } else {
            line = line_at(w + j / 2 * 64);
            line = _mm512_and_si512(j % 2 == 0 ? line : _mm512_srli_epi16(line, 4), low);
        }
        for (int r = 0; r < kRows; ++r)
            sums[r] = _mm512_dpbusd_epi32(sums[r], line, four_bytes(q + (j * kRows + r) * 4));
    }
}

// One tile of rows, one panel.
template <int kBits, bool kMinimum, int kRows>
void multiply_tile(const GroupGemmArgs& a, int64_t panel, int64_t first) {
    constexpr int32_t kZero = kMinimum ? 0 : kBits == 8 ? 128 : 8;
    constexpr int64_t kBytes = group_unit_bytes(kBits);
    const int64_t units = a.group / kGroupUnit;
    const uint8_t* w = a.weights + panel * a.groups * units * kBytes;
    const uint16_t* scale = a.scale + panel * a.groups * kGroupPanel;
    const uint16_t* minimum = kMinimum ? a.minimum + panel * a.groups * kGroupPanel : nullptr;
    const int8_t* q = a.x.q + first * a.inputs();
    const float* x_scale = a.x.scale + first * a.groups;
    const int32_t* x_sum = a.x.sum + first * a.groups;
    __m512 y[kRows];
    for (__m512& part : y) part = _mm512_setzero_ps();
    for (int64_t g = 0; g < a.groups; ++g) {
        __m512i sums[kRows];
        for (int r = 0; r < kRows; ++r) sums[r] = _mm512_set1_epi32(-kZero * x_sum[r]);
        for (int64_t u = 0; u < units; ++u) {
            if constexpr (kRows == 1)
                for (int64_t i = 0; i < kBytes; i += 64) _mm_prefetch(w + kAhead + i, _MM_HINT_T0);
            add_unit<kBits, kRows>(w, q, sums);
            w += kBytes;
            q += kRows * kGroupUnit;
        }
        const __m512 d = halves(scale);
        for (int r = 0; r < kRows; ++r)
            y[r] = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(sums[r]), _mm512_set1_ps(x_scale[r])), d, y[r]);
        if constexpr (kMinimum) {
            const __m512 m = halves(minimum);
            for (int r = 0; r < kRows; ++r)
                y[r] = _mm512_fmadd_ps(_mm512_set1_ps(x_scale[r] * static_cast<float>(x_sum[r])), m, y[r]);
            minimum += kGroupPanel;
        }
        scale += kGroupPanel;
        x_scale += kRows;
        x_sum += kRows;
    }
    const int64_t n = panel * kGroupPanel, left = std::min(kGroupPanel, a.outputs - n);
    const __mmask16 mask = static_cast<__mmask16>((1u << left) - 1);
    for (int r = 0; r < kRows; ++r) {
        const int64_t place = (first + r) * a.outputs + n;
        if (a.bias != nullptr) y[r] = _mm512_add_ps(y[r], _mm512_maskz_loadu_ps(mask, a.bias + n));
        if (a.residual != nullptr) y[r] = _mm512_add_ps(y[r], _mm512_maskz_loadu_ps(mask, a.residual + place));
        _mm512_mask_storeu_ps(a.y + place, mask, y[r]);
    }
}

template <int kBits, bool kMinimum>
struct Panels {
    static void multiply(const GroupGemmArgs& a, int64_t begin, int64_t end) {
        for (int64_t panel = begin; panel < end; ++panel)
            for (int64_t first = 0; first < a.rows; first += kGroupTile) switch (std::min(kGroupTile, a.rows - first)) {
                    case 1: multiply_tile<kBits, kMinimum, 1>(a, panel, first); break;
                    case 2: multiply_tile<kBits, kMinimum, 2>(a, panel, first); break;
                    case 3: multiply_tile<kBits, kMinimum, 3>(a, panel, first); break;
                    case 4: multiply_tile<kBits, kMinimum, 4>(a, panel, first); break;
                    case 5: multiply_tile<kBits, kMinimum, 5>(a, panel, first); break;
                    case 6: multiply_tile<kBits, kMinimum, 6>(a, panel, first); break;
                    case 7: multiply_tile<kBits, kMinimum, 7>(a, panel, first); break;
                    default: multiply_tile<kBits, kMinimum, 8>(a, panel, first);
                }
    }
};

}  // namespace

const GroupGemmKernel& group_gemm_vnni() {
    static const GroupGemmKernel kernel{&prepare_group_rows, &multiply_as<Panels>};
    return kernel;
}

}  // namespace zeropoint
