// cell for any vector type V of simd/.
#pragma once

#include "kernels/activations.h"
#include "kernels/cell/cell.h"

#include <limits>

namespace zeropoint {
namespace {

// One row of CellGates.
template <class V, bool kByRows>
class GateRow {
public:
    using F = typename V::F;

    GateRow(const CellGates& gates, int64_t row) : v_(gates.v + row * gates.stride) {
        if constexpr (!kByRows) return;
        sums_ = gates.sums;
        bias_ = gates.bias;
        scale_ = V::set(gates.scale[row]);
        zero_point_ = V::set(gates.zero_point[row]);
    }

    // The gates [n, n + V::W).
    F operator()(int64_t n) const {
        const F v = V::load(v_ + n);
        if constexpr (!kByRows) return v;
        const F shift = V::mul(zero_point_, V::load(sums_ + n));
        return V::add(V::mul(V::sub(v, shift), scale_), V::load(bias_ + n));
    }

private:
    const float* v_;
    const float *sums_ = nullptr, *bias_ = nullptr;
    F scale_ = V::set(1.0f), zero_point_ = V::set(0.0f);
};

// V::W hidden units whose first gates are at n; the others follow kCellBlock apart.
template <class V, Cell kCell, class Row>
typename V::F next_state(const Row& x, const Row& h, int64_t n, const float* before, float* c) {
    using F = typename V::F;
    using A = Activations<V>;
    const auto from_x = [&](int gate) { return x(n + gate * kCellBlock); };
    const auto from_h = [&](int gate) { return h(n + gate * kCellBlock); };
    const auto both = [&](int gate) { return V::add(from_h(gate), from_x(gate)); };
    if constexpr (kCell == Cell::lstm) {
        const F i = A::sigmoid(both(0)), f = A::sigmoid(both(1)), g = A::tanh(both(2)), o = A::sigmoid(both(3));
        const F state = V::add(V::mul(f, V::load(c)), V::mul(i, g));
        V::store(c, state);
        return V::mul(o, A::tanh(state));
    } else if constexpr (kCell == Cell::gru) {
        const F r = A::sigmoid(both(0)), z = A::sigmoid(both(1));
        const F n = A::tanh(V::add(from_x(2), V::mul(r, from_h(2))));
        return V::add(V::mul(V::sub(V::load(before), n), z), n);
    } else if constexpr (kCell == Cell::tanh) {
        return A::tanh(both(0));
    } else {
        const F v = both(0);
        return V::select(V::less(v, V::set(0.0f)), V::set(0.0f), v);
    }
}

template <class V, Cell kCell, bool kByRows>
void cell_rows(const CellArgs& a, int64_t begin, int64_t end) {
    using F = typename V::F;
    constexpr int64_t kSize = cell_gates(kCell) * kCellBlock;
    for (int64_t row = 0; row < a.rows; ++row) {
        const GateRow<V, kByRows> x(a.x, row), h(a.h, row);
        F low = V::set(0.0f), high = V::set(0.0f);
        typename V::M nan = V::none();
        for (int64_t block = begin; block < end; ++block)
            for (int64_t i = 0; i < kCellBlock; i += V::W) {
                const int64_t at = row * a.stride + block * kCellBlock + i;
                const F now = next_state<V, kCell>(x, h, block * kSize + i, a.before + at,
                                                   kCell == Cell::lstm ? a.c + at : nullptr);
                V::store(a.after + at, now);
                nan = V::either(nan, V::is_nan(now));
                low = V::min(now, low);
                high = V::max(now, high);
            }
        const bool any = V::any(nan);
        a.low[row] = any ? std::numeric_limits<float>::quiet_NaN() : V::reduce_min(low);
        a.high[row] = any ? std::numeric_limits<float>::quiet_NaN() : V::reduce_max(high);
    }
}

template <class V, bool kByRows>
void cell_of(const CellArgs& a, int64_t begin, int64_t end) {
    switch (a.cell) {
        case Cell::lstm: return cell_rows<V, Cell::lstm, kByRows>(a, begin, end);
        case Cell::gru: return cell_rows<V, Cell::gru, kByRows>(a, begin, end);
        case Cell::tanh: return cell_rows<V, Cell::tanh, kByRows>(a, begin, end);
        case Cell::relu: return cell_rows<V, Cell::relu, kByRows>(a, begin, end);
    }
}

template <class V>
void cell_with(const CellArgs& a, int64_t begin, int64_t end) {
    return a.x.by_rows() ? cell_of<V, true>(a, begin, end) : cell_of<V, false>(a, begin, end);
}

}  // namespace
}  // namespace zeropoint
