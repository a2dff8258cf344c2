// bilinear for any vector type V of simd/. Rows of t are kept: with a scale of 2 each serves four rows of the output.
#pragma once

#include "kernels/simd/fused.h"
#include "kernels/bilinear/bilinear.h"

#include <limits>

namespace zeropoint {
namespace {

template <class V, class T, bool kFused>
struct Bilinear {
    const BilinearArgs& a;

    static typename V::F mix(typename V::F w0, typename V::F x0, typename V::F w1, typename V::F x1) {
        const typename V::F first = V::mul(w0, x0);
        return kFused ? V::fma(w1, x1, first) : V::add(first, V::mul(w1, x1));
    }
    static float mix(float w0, float x0, float w1, float x1) {
        return kFused ? fused(w1, x1, w0 * x0) : w0 * x0 + w1 * x1;
    }

    // t of one input row.
    void across(const T* x, float* t, float* floats) const {
        if (a.channels == 1) {
            for (int64_t i = 0; i < a.in_width; ++i) floats[i] = static_cast<float>(x[i]);
            for (int64_t o = 0; o < a.out_width; ++o) {
                const Tap& w = a.columns[o];
                t[o] = mix(w.first_weight, floats[w.first], w.second_weight, floats[w.second]);
            }
            return;
        }
        for (int64_t o = 0; o < a.out_width; ++o) {
            const Tap& w = a.columns[o];
            const T *first = x + w.first * a.channels, *second = x + w.second * a.channels;
            const typename V::F w0 = V::set(w.first_weight), w1 = V::set(w.second_weight);
            float* to = t + o * a.channels;
            int64_t c = 0;
            for (; c + V::W <= a.channels; c += V::W)
                V::store(to + c,
                         mix(w0, V::to_float(V::load_int(first + c)), w1, V::to_float(V::load_int(second + c))));
            for (; c < a.channels; ++c)
                to[c] =
                    mix(w.first_weight, static_cast<float>(first[c]), w.second_weight, static_cast<float>(second[c]));
        }
    }

    void down(const Tap& h, const float* t0, const float* t1, T* y) const {
        constexpr int64_t kBlock = 4 * V::W;
        static_assert(kBlock <= BilinearArgs::kRoom);
        const typename V::F w0 = V::set(h.first_weight), w1 = V::set(h.second_weight);
        const typename V::F zero_point = V::set(static_cast<float>(a.zero_point)), qmin = V::set(a.qmin),
                            qmax = V::set(a.qmax);
        const bool whole = a.qmin == static_cast<float>(std::numeric_limits<T>::min()) &&
                           a.qmax == static_cast<float>(std::numeric_limits<T>::max());
        const auto at = [&](int64_t i) {
            return V::add(V::sub(mix(w0, V::load(t0 + i), w1, V::load(t1 + i)), zero_point), zero_point);
        };
        const auto rounded = [&](int64_t i) { return V::round_to_int(at(i)); };
        const auto clamped = [&](int64_t i) { return V::round_to_int(V::clamp(V::round(at(i)), qmin, qmax)); };
        const auto block = [&](int64_t i, T* to) {
            if (whole)  // the limits are the type's own: saturating stores do
                V::store4_saturated(to, rounded(i), rounded(i + V::W), rounded(i + 2 * V::W), rounded(i + 3 * V::W));
            else
                V::store4(to, clamped(i), clamped(i + V::W), clamped(i + 2 * V::W), clamped(i + 3 * V::W));
        };
        const int64_t n = a.out_width * a.channels;
        int64_t i = 0;
        for (; i + kBlock <= n; i += kBlock) block(i, y + i);
        if (i == n) return;
        T last[kBlock];
        block(i, last);
        for (int64_t k = i; k < n; ++k) y[k] = last[k - i];
    }

    void run(int64_t begin, int64_t end, float* scratch) const {
        const int64_t length = a.out_width * a.channels + BilinearArgs::kRoom;
        float* kept[2] = {scratch, scratch + length};
        float* floats = scratch + 2 * length;
        for (int64_t i = 0; i < 2 * length; ++i)
            scratch[i] = 0.0f;         // nothing past the ends is ever used, but it is read
        int64_t row_of[2] = {-1, -1};  // which input row, counted over all images
        for (int64_t row = begin; row < end; ++row) {
            const int64_t image = row / a.out_height;
            const Tap& h = a.rows[row % a.out_height];
            const int64_t wanted[2] = {image * a.in_height + h.first, image * a.in_height + h.second};
            const float* t[2];
            for (int k = 0; k < 2; ++k) {
                int slot = row_of[0] == wanted[k] ? 0 : row_of[1] == wanted[k] ? 1 : -1;
                if (slot < 0) {
                    slot = row_of[0] == wanted[1 - k] ? 1 : 0;  // keep the other one
                    across(static_cast<const T*>(a.x) + wanted[k] * a.in_width * a.channels, kept[slot], floats);
                    row_of[slot] = wanted[k];
                }
                t[k] = kept[slot];
            }
            down(h, t[0], t[1], static_cast<T*>(a.y) + row * a.out_width * a.channels);
        }
    }
};

template <class V>
void bilinear_with(const BilinearArgs& a, int64_t begin, int64_t end, void* scratch) {
    float* memory = static_cast<float*>(scratch);
    if (a.type == IntType::u8) {
        if (a.fused) return Bilinear<V, uint8_t, true>{a}.run(begin, end, memory);
        return Bilinear<V, uint8_t, false>{a}.run(begin, end, memory);
    }
    if (a.fused) return Bilinear<V, int8_t, true>{a}.run(begin, end, memory);
    return Bilinear<V, int8_t, false>{a}.run(begin, end, memory);
}

}  // namespace
}  // namespace zeropoint
