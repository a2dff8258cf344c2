// float_softmax for any vector type V of simd/.
#pragma once

#include "kernels/activations.h"
#include "kernels/float_softmax/float_softmax.h"

#include <limits>

namespace zeropoint {
namespace {

template <class V>
struct FloatSoftmaxRow {
    using F = typename V::F;
    static constexpr int kLanes = FloatSoftmaxArgs::kLanes, kParts = kLanes / V::W;
    static constexpr float kLeast = -std::numeric_limits<float>::infinity();
    static_assert(kLanes % V::W == 0);

    const float* x;
    float* y;
    int64_t length;

    float largest() const {
        F parts[kParts];
        for (F& part : parts) part = V::set(kLeast);
        int64_t i = 0;
        for (; i + kLanes <= length; i += kLanes)
            for (int k = 0; k < kParts; ++k) parts[k] = V::max(V::load(x + i + k * V::W), parts[k]);
        F most = parts[0];
        for (int k = 1; k < kParts; ++k) most = V::max(parts[k], most);
        float found = V::reduce_max(most);
        for (; i < length; ++i) found = x[i] > found ? x[i] : found;
        return found;
    }
    bool has_nan() const {
        bool nan = false;
        for (int64_t i = 0; i < length; ++i) nan = nan || x[i] != x[i];
        return nan;
    }
    static void exponentials(const float* from, float* to, F most, F* parts) {
        for (int k = 0; k < kParts; ++k) {
            const F e = Activations<V>::exp(V::sub(V::load(from + k * V::W), most));
            V::store(to + k * V::W, e);
            parts[k] = V::add(parts[k], e);
        }
    }
    // y = exp(x - found), the largest, and what each is then multiplied with.
    float exponentials_of_row(float found, bool safe) const {
        if (safe && found == kLeast && !has_nan()) {
            for (int64_t i = 0; i < length; ++i) y[i] = 0.0f;
            return 1.0f;
        }
        const F most = V::set(found);
        F parts[kParts];
        for (F& part : parts) part = V::set(0.0f);
        int64_t i = 0;
        for (; i + kLanes <= length; i += kLanes) exponentials(x + i, y + i, most, parts);
        if (i < length) {
            float last[kLanes];
            for (int k = 0; k < kLanes; ++k) last[k] = i + k < length ? x[i + k] : kLeast;
            exponentials(last, last, most, parts);
            for (int64_t k = i; k < length; ++k) y[k] = last[k - i];
        }
        for (int half = kParts / 2; half > 0; half /= 2)
            for (int k = 0; k < half; ++k) parts[k] = V::add(parts[k], parts[k + half]);
        return 1.0f / V::reduce_add(parts[0]);
    }
    void run(bool safe) const {
        const float factor = exponentials_of_row(largest(), safe);
        int64_t i = 0;
        for (; i + V::W <= length; i += V::W) V::store(y + i, V::mul(V::load(y + i), V::set(factor)));
        for (; i < length; ++i) y[i] *= factor;
    }
};

template <class V>
void float_softmax_with(const FloatSoftmaxArgs& a, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
        FloatSoftmaxRow<V>{a.x + row * a.length, a.y + row * a.length, a.length}.run(a.safe);
}

}  // namespace
}  // namespace zeropoint
