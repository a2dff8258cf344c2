// quantization_loss for a vector type V of eight lanes.
#pragma once

#include "kernels/quantization_loss/quantization_loss.h"

namespace zeropoint {
namespace {

template <class V>
struct LossLanes {
    using F = typename V::F;
    F low, scale, inv, qmax, zero, sum;
    LossLanes(const LossCandidate& c, float limit)
        : low(V::set(c.low)),
          scale(V::set(c.scale)),
          inv(V::set(c.inv)),
          qmax(V::set(limit)),
          zero(V::set(0.0f)),
          sum(V::set(0.0f)) {}
    F squared_error(F x) const {
        const F q = V::clamp(V::round(V::mul(V::sub(x, low), inv)), zero, qmax);
        const F error = V::sub(x, V::add(V::mul(q, scale), low));
        return V::mul(error, error);
    }
};

template <class V>
void quantization_loss_with(QuantizationLossArgs& a) {
    static_assert(V::W == 8, "the order of summation is eight lanes");
    LossLanes<V> lanes[2] = {{a.candidate[0], a.qmax}, {a.candidate[1], a.qmax}};
    int64_t i = 0;
    for (; i + 8 <= a.n; i += 8) {
        const typename V::F x = V::load(a.x + i);
        for (LossLanes<V>& l : lanes) l.sum = V::add(l.sum, l.squared_error(x));
    }
    float rest[8] = {};
    for (int64_t k = i; k < a.n; ++k) rest[k - i] = a.x[k];
    for (int k = 0; k < 2; ++k) {
        float sums[8], rest_error[8];
        V::store(sums, lanes[k].sum);
        V::store(rest_error, lanes[k].squared_error(V::load(rest)));
        float loss = 0;
        for (float s : sums) loss += s;
        for (int64_t j = 0; j < a.n - i; ++j) loss += rest_error[j];
        a.loss[k] = loss;
    }
}

}  // namespace
}  // namespace zeropoint
