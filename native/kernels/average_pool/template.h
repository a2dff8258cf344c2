// average_pool for any vector type V of simd/.
#pragma once

#include "kernels/average_pool/average_pool.h"

#include <limits>
#include <type_traits>

namespace zeropoint {
namespace {

struct Sum {
    static int32_t two(int32_t a, int32_t b) { return a + b; }
    template <int N, bool First, class T>
    static void into(int32_t* __restrict acc, const T* const* sources, int64_t n) {
        const T *a = sources[0], *b = sources[N > 1 ? 1 : 0], *c = sources[N > 2 ? 2 : 0], *d = sources[N > 3 ? 3 : 0];
        // Four bytes fit in 16 bits, where a vector adds twice as many.
        using Part = std::conditional_t<sizeof(T) == 1, int16_t, int32_t>;
        for (int64_t i = 0; i < n; ++i) {
            Part s = a[i];
            if (N > 1) s = static_cast<Part>(s + b[i]);
            if (N > 2) s = static_cast<Part>(s + c[i]);
            if (N > 3) s = static_cast<Part>(s + d[i]);
            acc[i] = First ? s : acc[i] + s;
        }
    }
};

// sums[i] -> y[i], all with one factor and one offset. Reads a block of sums past the last.
template <class V, class T>
struct Finish {
    using F = typename V::F;
    using I = typename V::I;
    Averaging averaging;
    bool whole;  // the limits are the type's own: saturating stores do
    F zero_point, qmin, qmax;
    I int_zero_point;

    explicit Finish(const AveragePoolArgs& a)
        : averaging(a.averaging),
          whole(a.qmin == static_cast<float>(std::numeric_limits<T>::min()) &&
                a.qmax == static_cast<float>(std::numeric_limits<T>::max())),
          zero_point(V::set(static_cast<float>(a.zero_point))),
          qmin(V::set(a.qmin)),
          qmax(V::set(a.qmax)),
          int_zero_point(V::set_int(a.zero_point)) {}

    template <Averaging kHow, bool kWhole>
    I one(const int32_t* sums, F factor, I offset) const {
        const F sum = V::to_float(V::sub(V::load_int(sums), offset));
        if (kHow == Averaging::split && kWhole) return V::add(V::round_to_int(V::mul(sum, factor)), int_zero_point);
        F v;
        if (kHow == Averaging::split)
            v = V::add(V::round(V::mul(sum, factor)), zero_point);
        else if (kHow == Averaging::fused)
            v = V::fma(sum, factor, zero_point);
        else if (kHow == Averaging::divided)
            v = V::add(V::div(sum, factor), zero_point);
        else
            v = V::add(V::mul(sum, factor), zero_point);
        return V::round_to_int(kWhole ? v : V::clamp(V::round(v), qmin, qmax));
    }
    template <Averaging kHow, bool kWhole>
    void block(const int32_t* sums, T* y, F factor, I offset) const {
        const I a = one<kHow, kWhole>(sums, factor, offset), b = one<kHow, kWhole>(sums + V::W, factor, offset);
        const I c = one<kHow, kWhole>(sums + 2 * V::W, factor, offset),
                d = one<kHow, kWhole>(sums + 3 * V::W, factor, offset);
        if (kWhole)
            V::store4_saturated(y, a, b, c, d);
        else
            V::store4(y, a, b, c, d);
    }
    template <Averaging kHow, bool kWhole>
    void run(const int32_t* sums, T* y, int64_t n, float factor_, int32_t offset_) const {
        constexpr int64_t kBlock = 4 * V::W;
        static_assert(kBlock <= AveragePoolArgs::kRoom);
        const F factor = V::set(factor_);
        const I offset = V::set_int(offset_);
        int64_t i = 0;
        for (; i + kBlock <= n; i += kBlock) block<kHow, kWhole>(sums + i, y + i, factor, offset);
        if (i == n) return;
        T last[kBlock];
        block<kHow, kWhole>(sums + i, last, factor, offset);
        for (int64_t k = i; k < n; ++k) y[k] = last[k - i];
    }
    template <Averaging kHow>
    void run(const int32_t* sums, T* y, int64_t n, float factor, int32_t offset) const {
        return whole ? run<kHow, true>(sums, y, n, factor, offset) : run<kHow, false>(sums, y, n, factor, offset);
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

// The sum of n neighbours, in 16-bit lanes as long as they cannot overflow.
template <class T>
int32_t sum_of(const T* x, int64_t n) {
    using Lane = std::conditional_t<std::is_signed_v<T>, int16_t, uint16_t>;
    constexpr int kLanes = 64;
    constexpr int64_t kBlock = 128 * kLanes;
    int32_t total = 0;
    int64_t i = 0;
    while (i + kLanes <= n) {
        Lane lanes[kLanes] = {};
        const int64_t end = i + kBlock < n ? i + kBlock : n;
        for (; i + kLanes <= end; i += kLanes)
            for (int k = 0; k < kLanes; ++k) lanes[k] = static_cast<Lane>(lanes[k] + x[i + k]);
        for (int k = 0; k < kLanes; ++k) total += lanes[k];
    }
    for (; i < n; ++i) total += x[i];
    return total;
}

template <class V, class T>
struct AverageRows {
    const AveragePoolArgs& a;
    const PoolShape& s;
    const T* x;
    int32_t *columns, *sums;
    bool global, by_window;

    AverageRows(const AveragePoolArgs& args, int32_t* scratch)
        : a(args),
          s(args.shape),
          x(static_cast<const T*>(args.x)),
          columns(scratch),
          sums(scratch + s.width.in * s.channels),
          global(s.pixel == 1 && s.width.out == 1 && s.width.windows[0].begin == 0 &&
                 s.width.windows[0].end == s.width.in),
          by_window(s.channels >= 32 && disjoint(s.width)) {}

    // The sums of all windows of a row, channel by channel.
    void add(const PoolRow& r) const {
        const WindowAxis& width = s.width;
        if (global) {  // whole rows of one channel: neighbours in memory
            const Window d = s.depth.windows[r.depth], h = s.height.windows[r.height];
            sums[0] = 0;
            for (int64_t id = d.begin; id < d.end; ++id)
                sums[0] +=
                    sum_of(x + r.in_plane + (id * s.height.in + h.begin) * width.in, (h.end - h.begin) * width.in);
            return;
        }
        const bool any = !by_window && combine_rows<Sum>(s, r, x, columns);
        const auto some = [&](int64_t first, int64_t last) {
            for (int64_t o = first; o < last; ++o) {
                int32_t* sum = sums + o * r.channels;
                const bool found = by_window ? combine_window<Sum>(s, r, x, o, sum)
                                             : any && combine_places<Sum>(width, o, r.channels, columns, sum);
                for (int64_t c = 0; c < r.channels && !found; ++c) sum[c] = 0;
            }
        };
        if (any && s.pixel == 1) {
            some(0, width.regular);
            combine_regular<Sum>(width, columns, sums + width.regular);
            some(width.regular_end, width.out);
        } else {
            some(0, width.out);
        }
    }

    void run(int64_t begin, int64_t end) const {
        const WindowAxis& width = s.width;
        const Finish<V, T> finish(a);
        for (int64_t i = 0; i < AveragePoolArgs::kRoom; ++i) sums[width.out * s.channels + i] = 0;
        PoolRow r = pool_row(s, begin);
        for (int64_t row = begin; row < end; next_row(s, row, r), ++row) {
            add(r);
            T* y = static_cast<T*>(a.y) + r.out;
            // Runs of outputs that share factor and offset: usually the whole row.
            for (int64_t o = 0; o < width.out;) {
                const int64_t stop = r.channels == s.pixel ? width.alike[o] : o + 1;
                finish(sums + o * r.channels, y + o * s.pixel, (stop - o) * r.channels, average_factor(a, r, o),
                       average_offset(a, r, o));
                o = stop;
            }
        }
    }
};

template <class V>
void average_pool_with(const AveragePoolArgs& a, int64_t begin, int64_t end, void* scratch) {
    int32_t* memory = static_cast<int32_t*>(scratch);
    if (a.type == IntType::u8) return AverageRows<V, uint8_t>(a, memory).run(begin, end);
    return AverageRows<V, int8_t>(a, memory).run(begin, end);
}

}  // namespace
}  // namespace zeropoint
