// Four outputs of a panel in a register, with sdot. 8-bit weights are made signed on the way.
#include "kernels/group_gemm/prepare.h"

#include <arm_neon.h>

#include <algorithm>

namespace zeropoint {
namespace {

constexpr int kParts = kGroupPanel / 4;

inline int8x16_t four_bytes(const int8_t* p) {
    int32_t word;
    std::memcpy(&word, p, sizeof word);
    return vreinterpretq_s8_s32(vdupq_n_s32(word));
}

inline float32x4_t halves(const uint16_t* p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }

// A panel, 32 inputs. Rows are t words apart.
template <int kBits, int kRows>
inline void add_unit(const uint8_t* w, const int8_t* q, int64_t t, int32x4_t (*sums)[kRows]) {
    for (int j = 0; j < 8; ++j) {
        int8x16_t x[kRows];
        for (int r = 0; r < kRows; ++r) x[r] = four_bytes(q + (j * t + r) * 4);
        for (int part = 0; part < kParts; ++part) {
            uint8x16_t line;
            if constexpr (kBits == 8) {
                line = veorq_u8(vld1q_u8(w + j * 64 + part * 16), vdupq_n_u8(0x80));
            } else {
                line = vld1q_u8(w + j / 2 * 64 + part * 16);
                line = j % 2 == 0 ? vandq_u8(line, vdupq_n_u8(15)) : vshrq_n_u8(line, 4);
            }
            for (int r = 0; r < kRows; ++r) sums[part][r] = vdotq_s32(sums[part][r], vreinterpretq_s8_u8(line), x[r]);
        }
    }
}

inline void store(const GroupGemmArgs& a, int64_t row, int64_t n, float32x4_t y) {
    float values[4];
    vst1q_f32(values, y);
    const int64_t place = row * a.outputs + n;
    for (int64_t i = 0; i < std::min<int64_t>(4, a.outputs - n); ++i) {
        float value = values[i];
        if (a.bias != nullptr) value += a.bias[n + i];
        if (a.residual != nullptr) value += a.residual[place + i];
        a.y[place + i] = value;
    }
}

// kRows rows of a tile of t, from `row` on, and one panel.
template <int kBits, bool kMinimum, int kRows>
void multiply_rows(const GroupGemmArgs& a, int64_t panel, int64_t first, int64_t t, int64_t row) {
    constexpr int64_t kBytes = group_unit_bytes(kBits);
    constexpr int32_t kZero = kMinimum ? (kBits == 8 ? -128 : 0) : kBits == 8 ? 0 : 8;
    const int64_t units = a.group / kGroupUnit;
    const uint8_t* w = a.weights + panel * a.groups * units * kBytes;
    const int8_t* q = a.x.q + first * a.inputs() + row * 4;
    float32x4_t y[kParts][kRows];
    for (auto& part : y)
        for (float32x4_t& four : part) four = vdupq_n_f32(0);
    for (int64_t g = 0; g < a.groups; ++g) {
        const int64_t at = first * a.groups + g * t + row, parameter = (panel * a.groups + g) * kGroupPanel;
        int32x4_t sums[kParts][kRows];
        for (auto& part : sums)
            for (int r = 0; r < kRows; ++r) part[r] = vdupq_n_s32(-kZero * a.x.sum[at + r]);
        for (int64_t u = 0; u < units; ++u) {
            add_unit<kBits, kRows>(w, q, t, sums);
            w += kBytes;
            q += t * kGroupUnit;
        }
        for (int part = 0; part < kParts; ++part) {
            const float32x4_t d = halves(a.scale + parameter + part * 4);
            for (int r = 0; r < kRows; ++r)
                y[part][r] = vfmaq_f32(y[part][r], vmulq_n_f32(vcvtq_f32_s32(sums[part][r]), a.x.scale[at + r]), d);
            if constexpr (kMinimum) {
                const float32x4_t m = halves(a.minimum + parameter + part * 4);
                for (int r = 0; r < kRows; ++r) {
                    const float size = a.x.scale[at + r] * static_cast<float>(a.x.sum[at + r]);
                    y[part][r] = vfmaq_f32(y[part][r], vdupq_n_f32(size), m);
                }
            }
        }
    }
    for (int part = 0; part < kParts; ++part)
        for (int r = 0; r < kRows; ++r) store(a, first + row + r, panel * kGroupPanel + part * 4, y[part][r]);
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

const GroupGemmKernel& group_gemm_dotprod() {
    static const GroupGemmKernel kernel{&prepare_group_rows, &multiply_as<Panels>};
    return kernel;
}

}  // namespace zeropoint
