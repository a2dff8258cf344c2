#include "operators/resampling.h"

#include "cpu/memory.h"
#include "kernels/simd/fused.h"
#include "kernels/registry.h"
#include "operators/rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

namespace zeropoint {
namespace {

// Input elements for each output element along one axis, in float32 as everything here.
float step_of(int64_t in, int64_t out, bool align_corners, double scale) {
    if (align_corners) return out > 1 ? static_cast<float>(in - 1) / static_cast<float>(out - 1) : 0.0f;
    return scale > 0 ? static_cast<float>(1.0 / scale) : static_cast<float>(in) / static_cast<float>(out);
}

std::vector<Tap> taps_of(int64_t in, int64_t out, double scale, const BilinearRule& rule) {
    const float step = step_of(in, out, rule.align_corners, scale);
    std::vector<Tap> taps(static_cast<size_t>(out));
    for (int64_t o = 0; o < out; ++o) {
        float at = step * static_cast<float>(o);
        if (!rule.align_corners) {
            const float middle = static_cast<float>(o) + 0.5f;
            at = std::max(0.0f, rule.fused ? fused(step, middle, -0.5f) : step * middle - 0.5f);
        }
        Tap& tap = taps[static_cast<size_t>(o)];
        tap.first = std::min(static_cast<int64_t>(at), in - 1);
        tap.second = std::min(tap.first + 1, in - 1);
        tap.second_weight = at - static_cast<float>(tap.first);
        tap.first_weight = 1.0f - tap.second_weight;
        if (rule.fuse_first) {
            std::swap(tap.first, tap.second);
            std::swap(tap.first_weight, tap.second_weight);
        }
    }
    return taps;
}

std::vector<int64_t> sources_of(int64_t in, int64_t out, double scale, bool exact) {
    const float step = step_of(in, out, false, scale);
    std::vector<int64_t> sources(static_cast<size_t>(out));
    for (int64_t o = 0; o < out; ++o) {
        // PyTorch adds the half in double.
        const float at = exact ? static_cast<float>((static_cast<double>(o) + 0.5) * static_cast<double>(step))
                               : static_cast<float>(o) * step;
        sources[static_cast<size_t>(o)] = std::min(static_cast<int64_t>(std::floor(at)), in - 1);
    }
    return sources;
}

// kBytes 0: any number.
template <int64_t kBytes>
void copy_places(const unsigned char* x, unsigned char* y, const std::vector<int64_t>& sources, int64_t bytes) {
    const size_t size = static_cast<size_t>(kBytes > 0 ? kBytes : bytes);
    for (const int64_t source : sources) {
        std::memcpy(y, x + static_cast<size_t>(source) * size, size);
        y += size;
    }
}

}  // namespace

void bilinear(const ResampleTensor& t, const BilinearRule& rule) {
    const std::vector<Tap> rows = taps_of(t.in_height, t.out_height, rule.scale_height, rule);
    const std::vector<Tap> columns = taps_of(t.in_width, t.out_width, rule.scale_width, rule);
    BilinearArgs args;
    args.x = t.x;
    args.y = t.y;
    args.type = t.type;
    args.channels = t.channels;
    args.in_height = t.in_height;
    args.in_width = t.in_width;
    args.out_height = t.out_height;
    args.out_width = t.out_width;
    args.rows = rows.data();
    args.columns = columns.data();
    args.fused = rule.fused;
    args.zero_point = rule.zero_point;
    args.qmin = rule.qmin;
    args.qmax = rule.qmax;
    const int64_t all = t.images * t.out_height, row = t.out_width * t.channels;
    prepare_output(t.y, static_cast<size_t>(all * row));
    const BilinearFn kernel = kernels().bilinear;
    over_rows(all, row, static_cast<size_t>(args.scratch()) * sizeof(float),
              [&](int64_t begin, int64_t end, void* scratch) { kernel(args, begin, end, scratch); });
}

void nearest(const NearestTensor& t, const NearestRule& rule) {
    std::array<std::vector<int64_t>, 3> sources;
    for (size_t d = 0; d < 3; ++d) sources[d] = sources_of(t.in[d], t.out[d], rule.scale[d], rule.exact);
    const int64_t in_row = t.in[2] * t.bytes, out_row = t.out[2] * t.bytes, rows = t.images * t.out[0] * t.out[1];
    prepare_output(t.y, static_cast<size_t>(rows * out_row));
    over_rows(rows, out_row, 0, [&](int64_t begin, int64_t end, void*) {
        const unsigned char* before = nullptr;
        unsigned char* y = static_cast<unsigned char*>(t.y) + begin * out_row;
        for (int64_t row = begin; row < end; ++row, y += out_row) {
            const int64_t h = row % t.out[1], d = row / t.out[1] % t.out[0], image = row / t.out[1] / t.out[0];
            const int64_t from =
                (image * t.in[0] + sources[0][static_cast<size_t>(d)]) * t.in[1] + sources[1][static_cast<size_t>(h)];
            const unsigned char* x = static_cast<const unsigned char*>(t.x) + from * in_row;
            if (x == before)
                std::memcpy(y, y - out_row, static_cast<size_t>(out_row));
            else if (t.bytes == 1)
                copy_places<1>(x, y, sources[2], 1);
            else if (t.bytes == 4)
                copy_places<4>(x, y, sources[2], 4);
            else
                copy_places<0>(x, y, sources[2], t.bytes);
            before = x;
        }
    });
}

}  // namespace zeropoint
