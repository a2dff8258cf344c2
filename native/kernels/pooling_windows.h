// Pooling: which inputs each output sees, and how kernels walk them.
//
// A pooled tensor is planes of depth x height x width places (missing axes have one). At each place lie `channels`
// neighbours in memory that are pooled side by side: a block of C where channels are innermost (NHWC), one where they
// are not (NCHW: every channel is a plane of its own). Kernels compute whole rows of the output, in one of two ways:
//   - all rows of the input that a row of windows covers are combined place by place, then neighbours within the
//   result;
//     vector loops run along the width, and what overlapping windows share is computed once;
//   - window by window, with vector loops along the channels: less to store, where there are channels and no overlap.
#pragma once

#include "kernels/types.h"

namespace zeropoint {

// The inputs begin, begin + step, ... below end; all of them exist (padding is never stored).
struct Window {
    int64_t begin = 0, end = 0;
};

struct WindowAxis {
    int64_t in = 1, out = 1;
    int64_t step = 1;                   // of every window: the dilation
    const Window* windows = nullptr;    // `out` of them
    const int64_t* divisors = nullptr;  // average_pool: what this axis contributes to the divisor, for each output
    const int64_t* alike = nullptr;     // average_pool: up to which output divisor and number of inputs stay the same
    // The outputs [regular, regular_end) have windows of `taps` inputs each that begin `stride` apart.
    int64_t regular = 0, regular_end = 0, stride = 1, taps = 0;
};

struct PoolShape {
    WindowAxis depth, height, width;
    int64_t pixel = 1;     // elements from one place of the width to the next: C if channels are innermost, else 1
    int64_t channels = 1;  // of them, how many a plane holds; the last plane of an image may hold fewer
    int64_t blocks = 1;    // planes of an image: ceil(pixel / channels)
};

// One row of the output: where it lies and which rows of the input it combines.
struct PoolRow {
    int64_t in_plane = 0;  // first element of the plane
    int64_t out = 0;       // first element of the row
    int64_t depth = 0, height = 0;
    int64_t channels = 1;
};

namespace {  // internal linkage: this header is compiled once per instruction set

inline PoolRow pool_row(const PoolShape& s, int64_t row) {
    const int64_t rows = s.depth.out * s.height.out, plane = row / rows;
    const int64_t image = plane / s.blocks, first = plane % s.blocks * s.channels;
    PoolRow r;
    r.depth = row % rows / s.height.out;
    r.height = row % s.height.out;
    r.channels = s.pixel - first < s.channels ? s.pixel - first : s.channels;
    r.in_plane = image * s.depth.in * s.height.in * s.width.in * s.pixel + first;
    r.out = ((image * s.depth.out + r.depth) * s.height.out + r.height) * s.width.out * s.pixel + first;
    return r;
}

// pool_row(s, row + 1) from r = pool_row(s, row), without divisions where it is in the same plane.
inline void next_row(const PoolShape& s, int64_t row, PoolRow& r) {
    r.out += s.width.out * s.pixel;
    if (++r.height < s.height.out) return;
    r.height = 0;
    if (++r.depth == s.depth.out) r = pool_row(s, row + 1);
}

// Whether every input is in at most one window.
inline bool disjoint(const WindowAxis& axis) {
    for (int64_t o = 1; o < axis.out; ++o)
        if (axis.windows[o].begin < axis.windows[o - 1].end) return false;
    return true;
}

// Combines `sources` (element-wise, n of each) into `acc`. `first`: acc holds nothing yet.
// Combine::into<N, First>(acc, sources, n) handles up to kAtOnce sources in one pass.
template <class Combine, class A, class T>
inline void combine(A* acc, const T* const* sources, int count, int64_t n, bool first) {
    switch (count) {
        case 1:
            return first ? Combine::template into<1, true>(acc, sources, n)
                         : Combine::template into<1, false>(acc, sources, n);
        case 2:
            return first ? Combine::template into<2, true>(acc, sources, n)
                         : Combine::template into<2, false>(acc, sources, n);
        case 3:
            return first ? Combine::template into<3, true>(acc, sources, n)
                         : Combine::template into<3, false>(acc, sources, n);
        case 4:
            return first ? Combine::template into<4, true>(acc, sources, n)
                         : Combine::template into<4, false>(acc, sources, n);
        default: return;
    }
}

constexpr int kAtOnce = 4;

// acc[w * channels + c] = all inputs in the depth and height windows of the row, at place w. False if there are none.
template <class Combine, class A, class T>
inline bool combine_rows(const PoolShape& s, const PoolRow& r, const T* x, A* acc) {
    const bool dense = r.channels == s.pixel;
    const int64_t segments = dense ? 1 : s.width.in, length = dense ? s.width.in * s.pixel : r.channels;
    const Window d = s.depth.windows[r.depth], h = s.height.windows[r.height];
    const T* rows[kAtOnce];
    int waiting = 0;
    bool first = true;
    const auto flush = [&] {
        for (int64_t i = 0; i < segments && waiting > 0; ++i) {
            combine<Combine>(acc + i * length, rows, waiting, length, first);
            for (int k = 0; k < waiting; ++k) rows[k] += s.pixel;
        }
        first = first && waiting == 0;
        waiting = 0;
    };
    for (int64_t id = d.begin; id < d.end; id += s.depth.step)
        for (int64_t ih = h.begin; ih < h.end; ih += s.height.step) {
            rows[waiting++] = x + r.in_plane + (id * s.height.in + ih) * s.width.in * s.pixel;
            if (waiting == kAtOnce) flush();
        }
    flush();
    return !first;
}

// out[c] = all of v[w * channels + c] for w in the window. False if it is empty.
template <class Combine, class A>
inline bool combine_places(const WindowAxis& axis, int64_t o, int64_t channels, const A* v, A* out) {
    const A* places[kAtOnce];
    int waiting = 0;
    bool first = true;
    for (int64_t w = axis.windows[o].begin; w < axis.windows[o].end; w += axis.step) {
        places[waiting++] = v + w * channels;
        if (waiting < kAtOnce) continue;
        combine<Combine>(out, places, waiting, channels, first);
        waiting = 0;
        first = false;
    }
    if (waiting > 0) combine<Combine>(out, places, waiting, channels, first);
    return !first || waiting > 0;
}

// out[c] = all inputs in the window of output `o` of the row, at channel c. False if there are none.
template <class Combine, class A, class T>
inline bool combine_window(const PoolShape& s, const PoolRow& r, const T* x, int64_t o, A* out) {
    const Window d = s.depth.windows[r.depth], h = s.height.windows[r.height], w = s.width.windows[o];
    const T* places[kAtOnce];
    int waiting = 0;
    bool first = true;
    for (int64_t id = d.begin; id < d.end; id += s.depth.step)
        for (int64_t ih = h.begin; ih < h.end; ih += s.height.step) {
            const T* row = x + r.in_plane + (id * s.height.in + ih) * s.width.in * s.pixel;
            for (int64_t iw = w.begin; iw < w.end; iw += s.width.step) {
                places[waiting++] = row + iw * s.pixel;
                if (waiting < kAtOnce) continue;
                combine<Combine>(out, places, waiting, r.channels, first);
                waiting = 0;
                first = false;
            }
        }
    if (waiting > 0) combine<Combine>(out, places, waiting, r.channels, first);
    return !first || waiting > 0;
}

// For one channel: the regular outputs in vector loops over neighbouring outputs. kStride 0: any stride.
template <class Combine, int kStride, class A>
inline void combine_regular(const WindowAxis& axis, const A* v, A* out) {
    const int64_t n = axis.regular_end - axis.regular, stride = kStride > 0 ? kStride : axis.stride;
    for (int64_t k = 0; k < axis.taps; ++k) {
        const A* from = v + axis.windows[axis.regular].begin + k * axis.step;
        if (k == 0)
            for (int64_t i = 0; i < n; ++i) out[i] = from[i * stride];
        else
            for (int64_t i = 0; i < n; ++i) out[i] = Combine::two(out[i], from[i * stride]);
    }
}

template <class Combine, class A>
inline void combine_regular(const WindowAxis& axis, const A* v, A* out) {
    if (axis.regular_end <= axis.regular) return;
    switch (axis.stride) {
        case 1: return combine_regular<Combine, 1>(axis, v, out);
        case 2: return combine_regular<Combine, 2>(axis, v, out);
        default: return combine_regular<Combine, 0>(axis, v, out);
    }
}

}  // namespace
}  // namespace zeropoint
