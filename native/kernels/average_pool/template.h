// average_pool for any vector type V of simd/.
#pragma once

#include "kernels/average_pool/average_pool.h"

namespace zeropoint {
namespace {

struct Sum {
    static int32_t two(int32_t a, int32_t b) { return a + b; }
    template <int N, bool First, class T>
    static void into(int32_t* __restrict acc, const T* const* sources, int64_t n) {
        const T *a = sources[0], *b = sources[N > 1 ? 1 : 0], *c = sources[N > 2 ? 2 : 0], *d = sources[N > 3 ? 3 : 0];
        for (int64_t i = 0; i < n; ++i) {
            int32_t s = a[i];
            if (N > 1) s += b[i];
            if (N > 2) s += c[i];
            if (N > 3) s += d[i];
            acc[i] = First ? s : acc[i] + s;
        }
    }
};

// sums[i] -> y[i], all with one factor and one offset.
template <class V, class T>
struct Finish {
    Averaging averaging;
    typename V::F zero_point, qmin, qmax;

    explicit Finish(const AveragePoolArgs& a)
        : averaging(a.averaging),
          zero_point(V::set(static_cast<float>(a.zero_point))),
          qmin(V::set(a.qmin)),
          qmax(V::set(a.qmax)) {}

    template <Averaging kHow>
    typename V::I one(const int32_t* sums, typename V::F factor, typename V::I offset) const {
        const typename V::F sum = V::to_float(V::sub(V::load_int(sums), offset));
        typename V::F v;
        if (kHow == Averaging::split)
            v = V::add(V::round(V::mul(sum, factor)), zero_point);
        else if (kHow == Averaging::fused)
            v = V::round(V::fma(sum, factor, zero_point));
        else if (kHow == Averaging::divided)
            v = V::round(V::add(V::div(sum, factor), zero_point));
        else
            v = V::round(V::add(V::mul(sum, factor), zero_point));
        return V::to_int(V::clamp(v, qmin, qmax));
    }
    template <Averaging kHow>
    void run(const int32_t* sums, T* y, int64_t n, float factor_, int32_t offset_) const {
        constexpr int64_t kBlock = 4 * V::W;
        const typename V::F factor = V::set(factor_);
        const typename V::I offset = V::set_int(offset_);
        const auto block = [&](const int32_t* from, T* to) {
            V::store4(to, one<kHow>(from, factor, offset), one<kHow>(from + V::W, factor, offset),
                      one<kHow>(from + 2 * V::W, factor, offset), one<kHow>(from + 3 * V::W, factor, offset));
        };
        int64_t i = 0;
        for (; i + kBlock <= n; i += kBlock) block(sums + i, y + i);
        if (i == n) return;
        int32_t last[kBlock] = {};
        T result[kBlock];
        for (int64_t k = i; k < n; ++k) last[k - i] = sums[k];
        block(last, result);
        for (int64_t k = i; k < n; ++k) y[k] = result[k - i];
    }
    void operator()(const int32_t* sums, T* y, int64_t n, float factor, int32_t offset) const {
        switch (averaging) {
            case Averaging::split: return run<Averaging::split>(sums, y, n, factor, offset);
            case Averaging::fused: return run<Averaging::fused>(sums, y, n, factor, offset);
            case Averaging::divided: return run<Averaging::divided>(sums, y, n, factor, offset);
            default: return run<Averaging::joined>(sums, y, n, factor, offset);
        }
    }
};

template <class V, class T>
void average_pool_rows(const AveragePoolArgs& a, int64_t begin, int64_t end, int32_t* scratch) {
    const PoolShape& s = a.shape;
    const WindowAxis& width = s.width;
    const Finish<V, T> finish(a);
    int32_t* columns = scratch;
    int32_t* sums = scratch + s.width.in * s.channels;
    for (int64_t row = begin; row < end; ++row) {
        const PoolRow r = pool_row(s, row);
        T* y = static_cast<T*>(a.y) + r.out;
        const bool any = combine_rows<Sum>(s, r, static_cast<const T*>(a.x), columns);
        const auto edge = [&](int64_t o) {
            if (!any || !combine_places<Sum>(width, o, r.channels, columns, sums + o * r.channels))
                for (int64_t c = 0; c < r.channels; ++c) sums[o * r.channels + c] = 0;
        };
        if (any && s.pixel == 1) {
            for (int64_t o = 0; o < width.regular; ++o) edge(o);
            combine_regular<Sum>(width, columns, sums + width.regular);
            for (int64_t o = width.regular_end; o < width.out; ++o) edge(o);
        } else {
            for (int64_t o = 0; o < width.out; ++o) edge(o);
        }
        // Runs of outputs that share factor and offset: usually the whole row.
        for (int64_t o = 0; o < width.out;) {
            const float factor = average_factor(a, r, o);
            const int32_t offset = average_offset(a, r, o);
            int64_t stop = o + 1;
            if (r.channels == s.pixel)
                while (stop < width.out && width.divisors[stop] == width.divisors[o] &&
                       inputs(width, stop) == inputs(width, o))
                    ++stop;
            finish(sums + o * r.channels, y + o * s.pixel, (stop - o) * r.channels, factor, offset);
            o = stop;
        }
    }
}

template <class V>
void average_pool_with(const AveragePoolArgs& a, int64_t begin, int64_t end, void* scratch) {
    int32_t* memory = static_cast<int32_t*>(scratch);
    if (a.type == IntType::u8) return average_pool_rows<V, uint8_t>(a, begin, end, memory);
    return average_pool_rows<V, int8_t>(a, begin, end, memory);
}

}  // namespace
}  // namespace zeropoint
