#include "operators/conv_shape.h"

#include "cpu/machine.h"
#include "cpu/threads.h"
#include "operators/winograd.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace zeropoint {
namespace {

// What the lines of a depthwise strip may take of the caches.
int64_t depthwise_bytes() { return machine().l2_bytes * 3 / 8; }

constexpr const char* kAxes[] = {"depth", "height", "width"};

template <class What>
void require(bool ok, const What& what) {
    if (!ok) throw std::invalid_argument(std::string("convolution: ") + what());
}

}  // namespace

void require_valid(const ConvShape& s) {
    const auto text = [](int64_t n) { return std::to_string(n); };
    require(s.in_channels > 0 && s.out_channels > 0 && s.groups > 0,
            [] { return "channels and groups must be positive"; });
    require(s.in_channels % s.groups == 0 && s.out_channels % s.groups == 0, [&] {
        return text(s.in_channels) + " input and " + text(s.out_channels) + " output channels cannot be divided into " +
               text(s.groups) + " groups";
    });
    for (size_t d = 0; d < 3; ++d) {
        const std::string along = std::string(" along the ") + kAxes[d];
        require(s.kernel[d] > 0 && s.stride[d] > 0 && s.dilation[d] > 0,
                [&] { return "kernel size, stride and dilation must be positive" + along; });
        require(s.padding[d] >= 0, [&] { return "padding must not be negative" + along; });
        const bool fits =
            s.transposed ? s.output_padding[d] < std::max(s.stride[d], s.dilation[d]) : s.output_padding[d] == 0;
        require(s.output_padding[d] >= 0 && fits, [&] {
            return "output_padding " + text(s.output_padding[d]) +
                   (s.transposed ? " must be smaller than stride or dilation" : " needs a transposed convolution") +
                   along;
        });
    }
}

std::vector<AxisPhase> phases_of(const ConvShape& s, size_t d) {
    const int64_t kernel = s.kernel[d], stride = s.stride[d], padding = s.padding[d], dilation = s.dilation[d];
    std::vector<AxisPhase> phases;
    if (!s.transposed) {
        AxisPhase p;
        p.in_step = stride;
        for (int64_t k = 0; k < kernel; ++k) p.taps.push_back({k, k * dilation - padding});
        phases.push_back(p);
        return phases;
    }
    phases.resize(static_cast<size_t>(stride));
    for (int64_t r = 0; r < stride; ++r) {
        phases[static_cast<size_t>(r)].first = r;
        phases[static_cast<size_t>(r)].step = stride;
    }
    for (int64_t k = kernel; k-- > 0;) {
        const int64_t behind = k * dilation - padding;
        const int64_t r = (behind % stride + stride) % stride;  // the phase that reads position k
        phases[static_cast<size_t>(r)].taps.push_back({k, (r - behind) / stride});
    }
    return phases;
}

int64_t lowest(const AxisPhase& p) { return p.taps.empty() ? 0 : p.taps.front().offset; }
int64_t highest(const AxisPhase& p) { return p.taps.empty() ? 0 : p.taps.back().offset; }

bool neighbours(const AxisPhase& p) {
    for (size_t i = 1; i < p.taps.size(); ++i)
        if (p.taps[i].offset != p.taps[i - 1].offset + 1) return false;
    return !p.taps.empty();
}

Extent::Extent(const AxisPhase& p, int64_t count) {
    picked = p.taps.size() <= 1;
    step = picked ? 1 : p.in_step;
    size = picked ? count : (count - 1) * p.in_step + highest(p) - lowest(p) + 1;
}

int64_t Extent::input(const AxisPhase& p, int64_t first, int64_t i) const {
    return picked ? (first + i) * p.in_step + lowest(p) : first * p.in_step + lowest(p) + i;
}

int64_t Extent::place(const AxisPhase& p, const AxisPhase::Tap& tap) const {
    return picked ? 0 : tap.offset - lowest(p);
}

bool Extent::is_read(const AxisPhase& p, int64_t count, int64_t i) const {
    if (picked) return i < count;
    for (const AxisPhase::Tap& tap : p.taps) {
        const int64_t from = i - (tap.offset - lowest(p));
        if (from >= 0 && from % p.in_step == 0 && from / p.in_step < count) return true;
    }
    return false;
}

bool is_column(const ConvShape& s) {
    constexpr int64_t kFew = 16;
    return s.kernel[1] > 1 && s.kernel[2] == 1 && s.stride[2] == 1 && s.padding[2] == 0 && s.output_padding[2] == 0 &&
           s.groups == 1 && s.in_channels < kFew;
}
bool is_line(const ConvShape& s) {
    return s.kernel[2] > 1 && s.kernel[1] == 1 && s.stride[1] == 1 && s.padding[1] == 0 && s.output_padding[1] == 0 &&
           s.is_depthwise();
}
Size3 turned(const Size3& s) { return {s[0], s[2], s[1]}; }
ConvShape turned(ConvShape s) {
    for (Size3* each : {&s.kernel, &s.stride, &s.padding, &s.dilation, &s.output_padding}) *each = turned(*each);
    return s;
}

int64_t strip_lines(int64_t planes, int64_t lines, int64_t width) {
    const int64_t threads = num_threads(), pieces = threads * 4;
    const int64_t usual = std::min(lines, std::max<int64_t>(1, kGemmRows / width));
    const auto strips = [&](int64_t count) { return planes * ((lines + count - 1) / count); };
    if (threads == 1 || strips(usual) < pieces || strips(usual) > 8 * pieces) return usual;
    // The lines of the thread that has most to do, if each takes `pieces` parts of whole strips in turn.
    const auto longest = [&](int64_t count) {
        const int64_t part = (strips(count) + pieces - 1) / pieces, parts = (strips(count) + part - 1) / part;
        return (parts + threads - 1) / threads * part * count;
    };
    int64_t best = usual;
    for (int64_t count = (usual + 1) / 2; count <= std::min(lines, 2 * usual); ++count)
        if (longest(count) < longest(best)) best = count;
    return best;
}

int64_t depthwise_lines(int64_t planes, int64_t lines, int64_t line) {
    constexpr int64_t kLeast = 4;
    const int64_t pieces = num_threads() * 4;
    return std::min({lines, std::max(kLeast, depthwise_bytes() / line), std::max(kLeast, planes * lines / pieces)});
}

Size3 ConvShape::output_size(const Size3& in) const {
    Size3 out{};
    for (size_t d = 0; d < 3; ++d) {
        const int64_t reach = dilation[d] * (kernel[d] - 1) + 1;
        out[d] = transposed ? (in[d] - 1) * stride[d] - 2 * padding[d] + reach + output_padding[d]
                            : (in[d] + 2 * padding[d] - reach + stride[d]) / stride[d];
        const bool fits = transposed ? in[d] > 0 && out[d] > 0 : in[d] > 0 && in[d] + 2 * padding[d] >= reach;
        require(fits, [&] {
            return "an input of " + std::to_string(in[d]) + " along the " + kAxes[d] +
                   " is too small for a kernel of " + std::to_string(kernel[d]) + " with dilation " +
                   std::to_string(dilation[d]) + " and padding " + std::to_string(padding[d]);
        });
    }
    return out;
}

double ConvShape::scratch_bytes(int64_t images, const Size3& in) const {
    if (is_column(*this) && in[2] == 1) return turned(*this).scratch_bytes(images, turned(in));
    if (!is_line(*this) || in[1] != 1) return scratch_bytes_as_is(images, in);
    return std::max(scratch_bytes_as_is(images, in), turned(*this).scratch_bytes(images, turned(in)));
}

double ConvShape::scratch_bytes_as_is(int64_t images, const Size3& in) const {
    constexpr double kElement = 2;  // bytes of an operand element, at most
    const Size3 out = output_size(in);
    // The largest of all phases, axis by axis.
    double taps = 0, height = 0, width = 0;
    for (const AxisPhase& p : phases_of(*this, 0)) taps = std::max(taps, static_cast<double>(p.taps.size()));
    for (const AxisPhase& p : phases_of(*this, 2))
        if (p.count(out[2]) > 0) width = std::max(width, static_cast<double>(Extent(p, p.count(out[2])).size));
    const int64_t narrowest = std::max<int64_t>(1, out[2] / (transposed ? stride[2] : 1));
    const int64_t most = std::max(
        {2 * std::max<int64_t>(1, kGemmRows / narrowest), int64_t{4}, depthwise_bytes() / narrowest / in_channels / 2});
    for (const AxisPhase& p : phases_of(*this, 1)) {
        const int64_t lines = std::min(p.count(out[1]), most);
        if (lines > 0) height = std::max(height, static_cast<double>(Extent(p, lines).size));
    }
    const double line = static_cast<double>(in[2]) * static_cast<double>(in_channels);
    const double operand = taps * height * width * static_cast<double>(in_channels) + kOperandSlack;
    // What requantizes each channel: of each phase with taps, and once for those without.
    const int64_t packs = std::min(phases(), kernel[0] * kernel[1] * kernel[2] + 1);
    const int64_t panels = (out_channels / groups + kPanel - 1) / kPanel;
    const double folded =
        static_cast<double>(packs * groups * panels * (kPanel * 12)) + 1.0 * sizeof(Epilogue) * packs * groups;
    return operand * kElement + line + folded + winograd_scratch(*this, images, out);
}

}  // namespace zeropoint
