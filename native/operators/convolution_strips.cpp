#include "operators/convolution_strips.h"

#include "kernels/registry.h"
#include "operators/scratch.h"

#include <algorithm>
#include <cstring>

namespace zeropoint {
namespace {

struct LineMemory;

}  // namespace

Strips::Strips(const std::array<AxisPhase, 3>& phase, const Size3& out) : axes(&phase) {
    for (size_t d = 0; d < 3; ++d) counts[d] = phase[d].count(out[d]);
    if (counts[2] > 0) width = Extent(phase[2], counts[2]);
}

Strip Strips::at(int64_t number) const {
    const int64_t plane = number / per_plane, line = number % per_plane * lines;
    return {plane / counts[0], plane % counts[0], line, std::min(lines, counts[1] - line)};
}

void Strips::place(int64_t channels, bool merged, std::vector<int64_t>& taps) {
    const AxisPhase &depth = (*axes)[0], &vertical = (*axes)[1], &horizontal = (*axes)[2];
    per_plane = (counts[1] + lines - 1) / lines;
    height = Extent(vertical, lines);
    first_tap = taps.size();
    for (size_t d = 0; d < depth.taps.size(); ++d)
        for (const AxisPhase::Tap& h : vertical.taps)
            for (const AxisPhase::Tap& w : horizontal.taps) {
                const int64_t line = static_cast<int64_t>(d) * height.size + height.place(vertical, h);
                taps.push_back((line * width.size + width.place(horizontal, w)) * channels);
                if (merged) break;  // the tap begins with the first
            }
    tap_count = taps.size() - first_tap;
    elements = static_cast<int64_t>(depth.taps.size()) * height.size * width.size * channels;
}

void Strips::rows(const Strip& strip, int64_t first, int64_t m, int64_t channels, const Size3& out, int64_t pixel,
                  int64_t* rows, int64_t* y_rows) const {
    const AxisPhase &depth = (*axes)[0], &vertical = (*axes)[1], &horizontal = (*axes)[2];
    const int64_t plane = strip.image * out[0] + depth.first + strip.depth * depth.step;
    const int64_t row_step = width.step * channels, y_step = horizontal.step * pixel;
    int64_t h = first / counts[2], w = first % counts[2];
    for (int64_t i = 0; i < m; ++h, w = 0) {
        const int64_t line = plane * out[1] + vertical.first + (strip.line + h) * vertical.step;
        int64_t row = h * height.step * width.size * channels + w * row_step;
        int64_t y_row = (line * out[2] + horizontal.first) * pixel + w * y_step;
        for (const int64_t end = std::min(m, i + counts[2] - w); i < end; ++i) {
            rows[i] = row;
            y_rows[i] = y_row;
            row += row_step;
            y_row += y_step;
        }
    }
}

void Strips::rows_in_place(const Strip& strip, int64_t first, int64_t m, int64_t channels, const Size3& in,
                           int64_t* rows) const {
    const int64_t plane = strip.image * in[0] + strip.depth * (*axes)[0].in_step, step = (*axes)[2].in_step * channels;
    int64_t h = first / counts[2], w = first % counts[2];
    for (int64_t i = 0; i < m; ++h, w = 0) {
        const int64_t line = plane * in[1] + (strip.line + h) * (*axes)[1].in_step;
        int64_t row = line * in[2] * channels + w * step;
        for (const int64_t end = std::min(m, i + counts[2] - w); i < end; ++i, row += step) rows[i] = row;
    }
}

// The zero point.
void StripInput::fill(uint8_t* to, int64_t pixels) const {
    if (pixels > 0) std::memset(to, zero, static_cast<size_t>(pixels * channels * size));
}

// One line of the input, with channels innermost.
const uint8_t* StripInput::line(int64_t image, int64_t id, int64_t ih) const {
    const int64_t at = (id * in[1] + ih) * in[2], places = in[0] * in[1] * in[2];
    if (!channels_first) return x + (image * places + at) * channels;
    uint8_t* to = scratch_of<LineMemory>(static_cast<size_t>(in[2] * channels));
    kernels().interleave({x + image * channels * places + at, places, channels, to}, 0, in[2]);
    return to;
}

void StripInput::prepare_line(const Strips& strips, const uint8_t* from, uint8_t* to) const {
    const AxisPhase& axis = (*strips.axes)[2];
    const Extent& width = strips.width;
    const int64_t bytes = channels * size;
    if (width.picked && axis.in_step > 1) {
        for (int64_t i = 0; i < width.size; ++i) {
            const int64_t iw = width.input(axis, 0, i);
            if (iw >= 0 && iw < in[2])
                convert(from + iw * channels, channels, activation, to + i * bytes);
            else
                fill(to + i * bytes, 1);
        }
        return;
    }
    const int64_t low = lowest(axis);
    const int64_t left = std::clamp<int64_t>(-low, 0, width.size);
    const int64_t right = std::clamp<int64_t>(in[2] - low, left, width.size);
    fill(to, left);
    if (right > left) convert(from + (low + left) * channels, (right - left) * channels, activation, to + left * bytes);
    fill(to + right * bytes, width.size - right);
}

void StripInput::prepare(const Strips& strips, const Strip& strip, uint8_t* to) const {
    const AxisPhase &depth = (*strips.axes)[0], &vertical = (*strips.axes)[1];
    for (const AxisPhase::Tap& d : depth.taps) {
        const int64_t id = strip.depth * depth.in_step + d.offset;
        for (int64_t i = 0; i < strips.height.size; ++i, to += strips.width.size * channels * size) {
            if (!strips.height.is_read(vertical, strip.lines, i)) continue;
            const int64_t ih = strips.height.input(vertical, strip.line, i);
            if (id < 0 || id >= in[0] || ih < 0 || ih >= in[1])
                fill(to, strips.width.size);
            else
                prepare_line(strips, line(strip.image, id, ih), to);
        }
    }
}

}  // namespace zeropoint
