// normalize for any vector type V of simd/.
#pragma once

#include "kernels/normalize/normalize.h"

#include <limits>

namespace zeropoint {
namespace {

// How v becomes y. `plain` is split with inverse 1, bounded; `whole`: in the whole range of the type, too.
enum class Finish { whole, plain, split, joined };

template <class V, class T, ByRow kBy, Finish kFinish>
struct Normalize {
    using F = typename V::F;
    static constexpr int64_t kBlock = 4 * V::W;
    static constexpr bool kPlain = kFinish == Finish::whole || kFinish == Finish::plain;

    const NormalizeArgs& a;
    F inverse, zero_point, most;
    int32_t offset;

    explicit Normalize(const NormalizeArgs& args)
        : a(args),
          inverse(V::set(a.inverse)),
          zero_point(V::set(static_cast<float>(a.zero_point))),
          most(V::set(32767.0f)),
          offset(kFinish == Finish::joined ? 0 : a.zero_point) {}

    // What does not change in a row.
    struct Row {
        F center, factor, weight, bias;
        const float *centers, *weights, *biases;
    };
    Row row_of(int64_t row) const {
        const int64_t r = row * a.step, e = row / a.set_rows * a.length;
        const F zero = V::set(0.0f);
        if (kBy == ByRow::all)
            return {V::set(a.center[r]), zero, V::set(a.weight[r]), V::set(a.bias[r]), nullptr, nullptr, nullptr};
        if (kBy == ByRow::center)
            return {V::set(a.center[r]),
                    V::set(a.factor != nullptr ? a.factor[r] : 1.0f),
                    zero,
                    zero,
                    nullptr,
                    a.weight,
                    a.bias};
        return {zero, zero, zero, zero, a.center + e, a.weight + e, a.bias + e};
    }

    F one(const Row& r, const T* x, int64_t i) const {
        const F q = V::to_float(V::load_int(x));
        F t = V::sub(q, kBy == ByRow::none ? V::load(r.centers + i) : r.center);
        if (kBy == ByRow::center && !kPlain) t = V::mul(t, r.factor);
        F v =
            kBy == ByRow::all ? V::fma(t, r.weight, r.bias) : V::fma(t, V::load(r.weights + i), V::load(r.biases + i));
        if (!kPlain) v = V::mul(v, inverse);
        if (kFinish == Finish::joined) v = V::add(v, zero_point);
        return kPlain ? v : V::min(v, most);  // also of NaN
    }
    // x and y stand at element i of the row.
    void block(const Row& r, const T* x, T* y, int64_t i) const {
        const F p = one(r, x, i), q = one(r, x + V::W, i + V::W), s = one(r, x + 2 * V::W, i + 2 * V::W),
                t = one(r, x + 3 * V::W, i + 3 * V::W);
        if (kFinish == Finish::whole)
            V::store4_offset(y, p, q, s, t, offset);
        else
            V::store4_clamped(y, p, q, s, t, offset, a.lo, a.hi);
    }
    // What is left of a row, on copies.
    void tail(const Row& r, const T* x, T* y, int64_t i, int64_t n) const {
        T in[kBlock] = {}, out[kBlock];
        float centers[kBlock] = {}, weights[kBlock] = {}, biases[kBlock] = {};
        Row copy = r;
        for (int64_t k = 0; k < n; ++k) {
            in[k] = x[k];
            if (kBy == ByRow::none) centers[k] = r.centers[i + k];
            if (kBy != ByRow::all) {
                weights[k] = r.weights[i + k];
                biases[k] = r.biases[i + k];
            }
        }
        copy.centers = centers;
        copy.weights = weights;
        copy.biases = biases;
        block(copy, in, out, 0);
        for (int64_t k = 0; k < n; ++k) y[k] = out[k];
    }
    void run(int64_t begin, int64_t end) const {
        for (int64_t row = begin; row < end; ++row) {
            const T* x = static_cast<const T*>(a.x) + row * a.length;
            T* y = static_cast<T*>(a.y) + row * a.length;
            const Row r = row_of(row);
            int64_t i = 0;
            for (; i + kBlock <= a.length; i += kBlock) block(r, x + i, y + i, i);
            if (i < a.length) tail(r, x + i, y + i, i, a.length - i);
        }
    }
};

template <class V, class T, ByRow kBy>
void normalize_by(const NormalizeArgs& a, int64_t begin, int64_t end) {
    if (a.joined) return Normalize<V, T, kBy, Finish::joined>(a).run(begin, end);
    const bool whole = a.lo == std::numeric_limits<T>::min() && a.hi == std::numeric_limits<T>::max();
    if (a.bounded && a.inverse == 1.0f && (kBy != ByRow::center || a.factor == nullptr))
        return whole ? Normalize<V, T, kBy, Finish::whole>(a).run(begin, end)
                     : Normalize<V, T, kBy, Finish::plain>(a).run(begin, end);
    return Normalize<V, T, kBy, Finish::split>(a).run(begin, end);
}

template <class V, class T>
void normalize_type(const NormalizeArgs& a, int64_t begin, int64_t end) {
    switch (a.by_row) {
        case ByRow::all: return normalize_by<V, T, ByRow::all>(a, begin, end);
        case ByRow::center: return normalize_by<V, T, ByRow::center>(a, begin, end);
        default: return normalize_by<V, T, ByRow::none>(a, begin, end);
    }
}

template <class V>
void normalize_with(const NormalizeArgs& a, int64_t begin, int64_t end) {
    if (a.type == IntType::u8) return normalize_type<V, uint8_t>(a, begin, end);
    return normalize_type<V, int8_t>(a, begin, end);
}

}  // namespace
}  // namespace zeropoint
