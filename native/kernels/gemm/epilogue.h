// The epilogue for any vector type V of simd/, on tiles of 16 output channels. See gemm.h for the formula.
#pragma once

#include "kernels/gemm/gemm.h"

#include <cstring>

namespace zeropoint {
namespace {

// The 16 channels of one panel, of which `left` exist.
template <class V>
class PanelEpilogue {
public:
    PanelEpilogue(const Epilogue& e, void* y, int64_t panel, int64_t left) : e_(e), y_(y), n_(panel * kPanel) {
        left_ = left < kPanel ? static_cast<int>(left) : static_cast<int>(kPanel);
        for (int i = 0; i < kVectors; ++i) {
            scale_.bias[i] = V::load_int(e.bias + n_ + i * V::W);
            scale_.multiplier[i] = V::load(e.multiplier + n_ + i * V::W);
            scale_.float_bias[i] = V::load(e.float_bias + n_ + i * V::W);
        }
    }

    // acc: `rows` times 16 sums.
    void operator()(const int32_t* acc, int64_t rows, const int64_t* y_rows) const {
        if (e_.type == OutputType::f32) return to_float(acc, rows, y_rows);
        if (e_.z == nullptr && !e_.leaky() && e_.after == nullptr) return to_bytes<false>(acc, rows, y_rows);
        return to_bytes<true>(acc, rows, y_rows);
    }

private:
    static constexpr int kVectors = static_cast<int>(kPanel) / V::W;
    using F = typename V::F;
    using I = typename V::I;

    // What a loop over rows keeps in registers: y is bytes, so after every store the compiler must think that members
    // have changed.
    struct Scale {
        I bias[kVectors];
        F multiplier[kVectors], float_bias[kVectors];

        F operator()(const int32_t* acc, int i) const {
            const F sum = V::to_float(V::add(V::load_int(acc + i * V::W), bias[i]));
            return V::add(V::mul(sum, multiplier[i]), float_bias[i]);
        }
    };
    F leaky(F v) const { return V::select(V::less(v, V::set(0.0f)), V::mul(v, V::set(e_.slope)), v); }

    F scaled_twice(const int32_t* acc, int i) const {
        const F sum = V::to_float(V::add(V::load_int(acc + i * V::W), scale_.bias[i]));
        const F v = V::mul(V::mul(sum, V::set(e_.first)), scale_.multiplier[i]);
        return V::mul(V::add(v, scale_.float_bias[i]), V::load(e_.after + n_ + i * V::W));
    }
    F rounded_with_zero_point(F v) const {
        const F zero_point = V::set(static_cast<float>(e_.zero_point));
        return V::sub(V::round(V::add(v, zero_point)), zero_point);
    }

    template <bool kMore>
    void to_bytes(const int32_t* acc, int64_t rows, const int64_t* y_rows) const {
        // The upper bound is taken before the conversion, which could overflow, and the lower one after it: v is then
        // never NaN.
        const F high = V::set(static_cast<float>(e_.hi - e_.zero_point));
        const Scale scale = scale_;
        const int32_t zero_point = e_.zero_point, lo = e_.lo;
        const bool is_leaky = kMore && e_.leaky();
        const bool whole = left_ == kPanel;
        const int64_t n = n_;
        uint8_t* const bytes = static_cast<uint8_t*>(y_);
        for (int64_t m = 0; m < rows; ++m, acc += kPanel) {
            const int64_t at = y_rows[m] + n;
            uint8_t part[kPanel] = {};
            F v[kVectors];
            for (int i = 0; i < kVectors; ++i) v[i] = scale(acc, i);
            if constexpr (kMore) {
                if (e_.after != nullptr)
                    for (int i = 0; i < kVectors; ++i) v[i] = scaled_twice(acc, i);
                if (e_.z != nullptr) add_residual(v, at, part);
                if (is_leaky)
                    for (F& x : v) x = leaky(x);
                if (e_.zero_point_first)
                    for (F& x : v) x = rounded_with_zero_point(x);
            }
            for (F& x : v) x = V::min(x, high);
            if (whole) {
                V::store16(bytes + at, v, zero_point, lo);
                continue;
            }
            V::store16(part, v, zero_point, lo);
            std::memcpy(bytes + at, part, static_cast<size_t>(left_));
        }
    }

    void add_residual(F* v, int64_t at, uint8_t* part) const {
        const uint8_t* z = static_cast<const uint8_t*>(e_.z) + at;
        if (left_ < kPanel) {
            std::memcpy(part, z, static_cast<size_t>(left_));
            z = part;
        }
        const I zero_point = V::set_int(e_.z_zero_point);
        const F multiplier = V::set(e_.z_multiplier);
        for (int i = 0; i < kVectors; ++i) {
            const I q = e_.z_type == IntType::s8 ? V::load_int(reinterpret_cast<const int8_t*>(z) + i * V::W)
                                                 : V::load_int(z + i * V::W);
            v[i] = V::add(v[i], V::mul(V::to_float(V::sub(q, zero_point)), multiplier));
        }
    }

    void to_float(const int32_t* acc, int64_t rows, const int64_t* y_rows) const {
        const F low = V::set(e_.low), high = V::set(e_.high);
        const bool is_leaky = e_.leaky();
        const Scale scale = scale_;
        for (int64_t m = 0; m < rows; ++m, acc += kPanel) {
            float* y = static_cast<float*>(y_) + y_rows[m] + n_;
            float part[kPanel];
            float* to = left_ == kPanel ? y : part;
            for (int i = 0; i < kVectors; ++i) {
                F v = scale(acc, i);
                if (is_leaky) v = leaky(v);
                V::store(to + i * V::W, V::clamp(v, low, high));
            }
            if (to == part) std::memcpy(y, part, static_cast<size_t>(left_) * sizeof(float));
        }
    }

    const Epilogue& e_;
    void* y_;
    int64_t n_;
    int left_;
    Scale scale_;
};

}  // namespace
}  // namespace zeropoint
