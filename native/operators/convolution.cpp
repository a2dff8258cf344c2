#include "operators/convolution.h"

#include "cpu/memory.h"
#include "cpu/threads.h"
#include "kernels/gemm/winograd.h"
#include "kernels/registry.h"
#include "operators/combination.h"
#include "operators/scratch.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <stdexcept>
#include <string>

namespace zeropoint {
namespace {

struct FoldMemory;
struct OperandMemory;
struct LineMemory;
struct WinogradInputs;
struct WinogradWeights;
struct WinogradSums;
struct WinogradRows;

// What the operand memory of a thread holds: neighbouring tasks often share a strip.
struct Prepared {
    uint64_t run = 0;
    int64_t phase = -1, strip = -1;
};
thread_local Prepared t_prepared;
std::atomic<uint64_t> g_runs{0};

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

namespace {

int64_t lowest(const AxisPhase& p) { return p.taps.empty() ? 0 : p.taps.front().offset; }
int64_t highest(const AxisPhase& p) { return p.taps.empty() ? 0 : p.taps.back().offset; }

bool neighbours(const AxisPhase& p) {
    for (size_t i = 1; i < p.taps.size(); ++i)
        if (p.taps[i].offset != p.taps[i - 1].offset + 1) return false;
    return !p.taps.empty();
}

// The inputs that `count` neighbouring outputs of a phase read along one axis, as they are kept in the operand.
struct Extent {
    bool picked = false;  // with one tap, only those are kept that are read
    int64_t size = 0;     // inputs kept
    int64_t step = 1;     // kept inputs from one output to the next

    Extent() = default;
    Extent(const AxisPhase& p, int64_t count) {
        picked = p.taps.size() <= 1;
        step = picked ? 1 : p.in_step;
        size = picked ? count : (count - 1) * p.in_step + highest(p) - lowest(p) + 1;
    }
    // The input at place i of those kept for the outputs from `first` on.
    int64_t input(const AxisPhase& p, int64_t first, int64_t i) const {
        return picked ? (first + i) * p.in_step + lowest(p) : first * p.in_step + lowest(p) + i;
    }
    int64_t place(const AxisPhase& p, const AxisPhase::Tap& tap) const { return picked ? 0 : tap.offset - lowest(p); }
};

// Whether one of the first `count` outputs reads what is kept at place i.
bool is_read(const AxisPhase& p, const Extent& e, int64_t count, int64_t i) {
    if (e.picked) return i < count;
    for (const AxisPhase::Tap& tap : p.taps) {
        const int64_t from = i - (tap.offset - lowest(p));
        if (from >= 0 && from % p.in_step == 0 && from / p.in_step < count) return true;
    }
    return false;
}

int32_t zero_point_of(const WeightTensor& w, int64_t n) {
    return w.zero_points == 0 ? 0 : w.zero_point[w.zero_points == 1 ? 0 : n];
}

// How many small groups fit a panel. They then are one, with weights that count nothing between them: as many
// multiplications as in panels that are mostly empty, but in longer loops.
int64_t joinable_groups(const WeightTensor& w, const ConvShape& s, Operand operand) {
    const int64_t n = s.out_channels / s.groups;
    // A shifted operand corrects weight zero points with sums over all channels of a group: they must not grow.
    for (int64_t i = 0; operand == Operand::shifted && i < s.out_channels; ++i)
        if (zero_point_of(w, i) != (w.type == IntType::u8 ? 128 : 0)) return 1;
    int64_t together = 1;
    for (int64_t count = 2; count <= s.groups && count * n <= kPanel; ++count)
        if (s.groups % count == 0) together = count;
    return together;
}

std::vector<uint8_t> join_groups(const WeightTensor& w, const ConvShape& s, int64_t together) {
    const int64_t channels = s.in_channels / s.groups, outputs = s.out_channels / s.groups;
    const int64_t taps = s.kernel[0] * s.kernel[1] * s.kernel[2], row = together * channels;
    std::vector<uint8_t> joined(static_cast<size_t>(s.out_channels * taps * row));
    for (int64_t n = 0; n < s.out_channels; ++n) {
        const uint8_t* from = static_cast<const uint8_t*>(w.data) + n * taps * channels;
        uint8_t* to = joined.data() + n * taps * row;
        std::memset(to, zero_point_of(w, n), static_cast<size_t>(taps * row));
        const int64_t place = n / outputs % together * channels;
        for (int64_t t = 0; t < taps; ++t)
            std::memcpy(to + t * row + place, from + t * channels, static_cast<size_t>(channels));
    }
    return joined;
}

// Lines of a strip: about as many as the kernels take in one call, and so many that the threads end together.
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

// A kernel of one column over an input of one column is a kernel of one row over one row: in memory they are the same,
// but there its positions make one tap. That matters for a few channels, which else are padded.
bool is_column(const ConvShape& s) {
    constexpr int64_t kFew = 16;
    return s.kernel[1] > 1 && s.kernel[2] == 1 && s.stride[2] == 1 && s.padding[2] == 0 && s.output_padding[2] == 0 &&
           s.groups == 1 && s.in_channels < kFew;
}
Size3 turned(const Size3& s) { return {s[0], s[2], s[1]}; }
ConvShape turned(ConvShape s) {
    for (Size3* each : {&s.kernel, &s.stride, &s.padding, &s.dilation, &s.output_padding}) *each = turned(*each);
    return s;
}

// Convolutions that Winograd's algorithm computes, see kernels/gemm/winograd.h. With few channels, its transforms take
// longer than the multiplications it saves.
bool has_winograd(const ConvShape& s) {
    const Size3 ones{1, 1, 1}, kernel{1, 3, 3};
    constexpr int64_t kLeast = 32;  // channels
    return !s.transposed && s.groups == 1 && s.kernel == kernel && s.stride == ones && s.dilation == ones &&
           s.in_channels % kWinogradMultiple == 0 && s.in_channels >= kLeast && s.in_channels <= kWinogradMost &&
           s.out_channels >= kLeast;
}

// What the transformed inputs of a strip may take: more would not stay in L2.
constexpr int64_t kWinogradBytes = 1 << 20;

struct WinogradSizes {
    int64_t inputs, weights, sums, rows;  // bytes

    WinogradSizes(int64_t tiles, int64_t channels)
        : inputs(kWinogradProducts * WinogradArgs::inputs_stride(tiles, channels) * 2),
          weights(kWinogradProducts * WinogradArgs::weights_stride(channels) * 2),
          sums(kWinogradProducts * WinogradArgs::sums_stride(tiles) * 4),
          rows(tiles * 5 * 8) {}

    int64_t all() const { return inputs + weights + sums + rows; }
};

constexpr int64_t kDepthwiseBytes = 192 << 10;

// Lines of a strip of a depthwise convolution. Preparing lines that two strips read, or those of a small image once for
// each of several chunks, costs more than the few multiplications: as many as the L2 cache holds.
// `line`: bytes of the operand for one line of the output.
int64_t depthwise_lines(int64_t planes, int64_t lines, int64_t line) {
    constexpr int64_t kLeast = 4;
    const int64_t pieces = num_threads() * 4;
    return std::min({lines, std::max(kLeast, kDepthwiseBytes / line), std::max(kLeast, planes * lines / pieces)});
}

}  // namespace

// A phase over inputs of a given size.
struct ConvPlan::Geometry {
    const Phase* phase = nullptr;
    Size3 counts{};     // outputs along each axis
    int64_t lines = 1;  // of the output, in a strip
    bool winograd = false;
    int64_t tile_columns = 0;  // of Winograd's tiles
    Extent height, width;
    int64_t strips_per_plane = 0, units = 0;
    Tiling tiling;
    int64_t first_task = 0;
    size_t first_tap = 0, tap_count = 0, first_epilogue = 0;
    int64_t elements = 0;  // of the operand
};

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

double ConvShape::scratch_bytes(const Size3& in) const {
    if (is_column(*this) && in[2] == 1) return turned(*this).scratch_bytes(turned(in));
    constexpr double kElement = 2;  // bytes of an operand element, at most
    const Size3 out = output_size(in);
    // The largest of all phases, axis by axis.
    double taps = 0, height = 0, width = 0;
    for (const AxisPhase& p : phases_of(*this, 0)) taps = std::max(taps, static_cast<double>(p.taps.size()));
    for (const AxisPhase& p : phases_of(*this, 2))
        if (p.count(out[2]) > 0) width = std::max(width, static_cast<double>(Extent(p, p.count(out[2])).size));
    const int64_t narrowest = std::max<int64_t>(1, out[2] / (transposed ? stride[2] : 1));
    const int64_t most = std::max(
        {2 * std::max<int64_t>(1, kGemmRows / narrowest), int64_t{4}, kDepthwiseBytes / (narrowest * in_channels * 2)});
    for (const AxisPhase& p : phases_of(*this, 1)) {
        const int64_t lines = std::min(p.count(out[1]), most);
        if (lines > 0) height = std::max(height, static_cast<double>(Extent(p, lines).size));
    }
    const double line = static_cast<double>(in[2]) * static_cast<double>(in_channels);
    const double operand = taps * height * width * static_cast<double>(in_channels) + kOperandSlack;
    double winograd = 0;
    if (has_winograd(*this)) {
        const WinogradSizes sizes(kWinogradBytes / (kWinogradProducts * in_channels * 2), in_channels);
        // And one more line and column of the operand.
        winograd =
            static_cast<double>(sizes.all()) + (height + width + 1) * static_cast<double>(in_channels) * kElement;
    }
    return operand * kElement + line + winograd;
}

bool ConvPlan::saves_multiplications(const ConvShape& shape, const GemmKernel& kernel) {
    return kernel.winograd != nullptr && has_winograd(shape);
}

ConvPlan::ConvPlan(const WeightTensor& w, const ConvShape& shape)
    : ConvPlan(w, shape, {zeropoint::kernels().gemm(), zeropoint::kernels().depthwise()}) {}

ConvPlan::ConvPlan(const WeightTensor& w, const ConvShape& shape, const ConvKernels& kernels)
    : given_(shape),
      shape_(shape),
      gemm_(kernels.gemm),
      depthwise_(kernels.depthwise),
      is_depthwise_(shape.groups > 1 && shape.groups == shape.in_channels && shape.groups == shape.out_channels) {
    require_valid(shape);
    zeropoint::require_valid("convolution", w, shape.out_channels);
    const Size3 ones{1, 1, 1}, zeros{};
    if (shape.kernel == ones && shape.stride == ones && shape.padding == zeros && shape.output_padding == zeros &&
        shape.groups == 1)
        pointwise_ = std::make_unique<LinearPlan>(w, shape.out_channels, shape.in_channels, gemm_);
    if (is_column(shape)) turned_ = std::make_unique<ConvPlan>(w, turned(shape), kernels);
    WeightTensor weights = w;
    std::vector<uint8_t> joined;
    const int64_t together = joinable_groups(w, shape, gemm_.operand);
    if (!is_depthwise_ && together > 1) {
        joined = join_groups(w, shape, together);
        weights.data = joined.data();
        shape_.groups /= together;
    }
    for (const AxisPhase& depth : phases_of(shape, 0))
        for (const AxisPhase& height : phases_of(shape, 1))
            for (const AxisPhase& width : phases_of(shape, 2)) add_phase(weights, {depth, height, width});
}

void ConvPlan::add_phase(const WeightTensor& w, const std::array<AxisPhase, 3>& axes) {
    Phase p;
    p.axes = axes;
    p.merged = shape_.groups == 1 && neighbours(axes[2]);
    std::vector<std::vector<int64_t>> taps;
    for (const AxisPhase::Tap& d : axes[0].taps)
        for (const AxisPhase::Tap& h : axes[1].taps) {
            std::vector<int64_t> row;
            for (const AxisPhase::Tap& x : axes[2].taps)
                row.push_back((d.index * shape_.kernel[1] + h.index) * shape_.kernel[2] + x.index);
            if (p.merged)
                taps.push_back(row);
            else
                for (int64_t tap : row) taps.push_back({tap});
        }
    const int64_t stored_taps = shape_.kernel[0] * shape_.kernel[1] * shape_.kernel[2];
    if (!is_depthwise_) {
        const int64_t n = shape_.out_channels / shape_.groups;
        for (int64_t g = 0; g < shape_.groups; ++g)
            p.weights.push_back(
                pack_weights(gemm_, w, g * n, n, stored_taps, shape_.in_channels / shape_.groups, taps));
        phases_.push_back(std::move(p));
        return;
    }
    PackedWeights sizes;
    sizes.n = shape_.out_channels;
    sizes.tap_count = static_cast<int64_t>(taps.size());
    sizes.channels = 1;
    sizes.sums.assign(static_cast<size_t>(sizes.panel_count() * kPanel), 0);
    const int64_t pairs = (sizes.tap_count + 1) / 2;
    p.depthwise = AlignedBytes(static_cast<size_t>(sizes.panel_count() * pairs * kPanel * 2) * sizeof(int16_t));
    int16_t* to = reinterpret_cast<int16_t*>(p.depthwise.data());
    for (int64_t c = 0; c < sizes.n; ++c)
        for (int64_t t = 0; t < sizes.tap_count; ++t) {
            const uint8_t bits = static_cast<const uint8_t*>(w.data)[c * stored_taps + taps[static_cast<size_t>(t)][0]];
            const int32_t value = w.type == IntType::s8 ? static_cast<int8_t>(bits) : bits;
            to[((c / kPanel * pairs + t / 2) * kPanel + c % kPanel) * 2 + t % 2] =
                static_cast<int16_t>(value - zero_point_of(w, c));
        }
    p.weights.push_back(std::move(sizes));
    phases_.push_back(std::move(p));
}

ConvPlan::Geometry ConvPlan::geometry(const Phase& phase, int64_t images, const Size3&, const Size3& out,
                                      std::vector<int64_t>& taps) const {
    Geometry g;
    g.phase = &phase;
    for (size_t d = 0; d < 3; ++d) g.counts[d] = phase.axes[d].count(out[d]);
    const int64_t planes = images * g.counts[0], pixels = planes * g.counts[1] * g.counts[2];
    if (pixels == 0) return g;
    g.width = Extent(phase.axes[2], g.counts[2]);
    const int64_t line = g.width.size * phase.axes[1].in_step * shape_.in_channels * operand_size();
    g.lines =
        is_depthwise_ ? depthwise_lines(planes, g.counts[1], line) : strip_lines(planes, g.counts[1], g.counts[2]);
    if (saves_multiplications(shape_, gemm_)) {
        const int64_t lines = (g.lines + 1) / 2 * 2, columns = (g.counts[2] + 1) / 2, tiles = lines / 2 * columns;
        // Transforming the weights takes as long as some of the multiplications.
        constexpr int64_t kTransform = 24;
        g.winograd = tiles * shape_.in_channels * kWinogradProducts * 2 <= kWinogradBytes &&
                     9 * g.lines * g.counts[2] > kWinogradProducts * tiles + kTransform;
        if (g.winograd) {
            g.lines = lines;
            g.tile_columns = columns;
        }
    }
    g.strips_per_plane = (g.counts[1] + g.lines - 1) / g.lines;
    g.height = Extent(phase.axes[1], g.lines);
    if (g.winograd) g.width = Extent(phase.axes[2], 2 * g.tile_columns);
    const int64_t channels = shape_.in_channels;
    const AxisPhase &height = phase.axes[1], &width = phase.axes[2];
    g.first_tap = taps.size();
    for (size_t d = 0; d < phase.axes[0].taps.size(); ++d)
        for (const AxisPhase::Tap& h : height.taps)
            for (const AxisPhase::Tap& w : width.taps) {
                const int64_t line = static_cast<int64_t>(d) * g.height.size + g.height.place(height, h);
                taps.push_back((line * g.width.size + g.width.place(width, w)) * channels);
                if (phase.merged) break;  // the tap begins with the first
            }
    g.tap_count = taps.size() - g.first_tap;
    g.elements = static_cast<int64_t>(phase.axes[0].taps.size()) * g.height.size * g.width.size * channels;
    int64_t macs = 0;
    for (const PackedWeights& w : phase.weights) {
        macs += w.macs_per_row() * g.lines * g.counts[2];
        g.units += w.panel_count();
    }
    const int64_t strips = planes * g.strips_per_plane;
    g.tiling = tiling(strips, macs, is_depthwise_ ? 1 : g.units);
    if (is_depthwise_) g.tiling.panels_per_chunk = g.units;
    return g;
}

// One run of a plan, as its tasks see it.
struct ConvPlan::Task {
    const ConvPlan& plan;
    const Activation activation;
    const uint8_t* x;
    const Size3 in, out;
    const bool channels_first;
    const int64_t size, channels, pixel;  // bytes of an operand element; channels of the input; elements of a y pixel
    uint8_t* memory = nullptr;

    void convert(const uint8_t* from, int64_t n, uint8_t* to) const {
        if (plan.is_depthwise_)
            plan.depthwise_.convert(from, n, activation, to);
        else
            plan.gemm_.convert(from, n, activation, to);
    }
    // The zero point.
    void fill(uint8_t* to, int64_t pixels) const {
        const bool shifted = !plan.is_depthwise_ && plan.gemm_.operand == Operand::shifted;
        if (pixels > 0)
            std::memset(to, shifted ? activation.shifted_zero_point() : 0,
                        static_cast<size_t>(pixels * channels * size));
    }

    // One line of the input, with channels innermost.
    const uint8_t* line(int64_t image, int64_t id, int64_t ih) const {
        const int64_t at = (id * in[1] + ih) * in[2], places = in[0] * in[1] * in[2];
        if (!channels_first) return x + (image * places + at) * channels;
        uint8_t* to = scratch_of<LineMemory>(static_cast<size_t>(in[2] * channels));
        for (int64_t c = 0; c < channels; ++c) {
            const uint8_t* from = x + (image * channels + c) * places + at;
            for (int64_t i = 0; i < in[2]; ++i) to[i * channels + c] = from[i];
        }
        return to;
    }

    void prepare_line(const Geometry& g, const uint8_t* from, uint8_t* to) const {
        const AxisPhase& axis = g.phase->axes[2];
        const int64_t bytes = channels * size;
        if (g.width.picked && axis.in_step > 1) {
            for (int64_t i = 0; i < g.width.size; ++i) {
                const int64_t iw = g.width.input(axis, 0, i);
                if (iw >= 0 && iw < in[2])
                    convert(from + iw * channels, channels, to + i * bytes);
                else
                    fill(to + i * bytes, 1);
            }
            return;
        }
        const int64_t low = lowest(axis);
        const int64_t left = std::clamp<int64_t>(-low, 0, g.width.size);
        const int64_t right = std::clamp<int64_t>(in[2] - low, left, g.width.size);
        fill(to, left);
        if (right > left) convert(from + (low + left) * channels, (right - left) * channels, to + left * bytes);
        fill(to + right * bytes, g.width.size - right);
    }

    // The input that `lines` lines of the output from h0 on read.
    void prepare(const Geometry& g, int64_t image, int64_t od, int64_t h0, int64_t lines) const {
        const AxisPhase &depth = g.phase->axes[0], &height = g.phase->axes[1];
        uint8_t* to = memory;
        for (const AxisPhase::Tap& d : depth.taps) {
            const int64_t id = od * depth.in_step + d.offset;
            for (int64_t i = 0; i < g.height.size; ++i, to += g.width.size * channels * size) {
                if (!is_read(height, g.height, lines, i)) continue;
                const int64_t ih = g.height.input(height, h0, i);
                if (id < 0 || id >= in[0] || ih < 0 || ih >= in[1])
                    fill(to, g.width.size);
                else
                    prepare_line(g, line(image, id, ih), to);
            }
        }
    }

    WinogradArgs winograd(const Geometry& g, int64_t lines) const {
        WinogradArgs a;
        a.x = reinterpret_cast<const int16_t*>(memory);
        a.line = g.width.size * channels;
        a.channels = channels;
        a.tile_lines = (lines + 1) / 2;
        a.tile_columns = g.tile_columns;
        const WinogradSizes sizes(g.lines / 2 * g.tile_columns, channels);
        const auto bytes = [](int64_t n) { return static_cast<size_t>(n); };
        a.inputs = reinterpret_cast<int16_t*>(scratch_of<WinogradInputs>(bytes(sizes.inputs)));
        a.weights = reinterpret_cast<int16_t*>(scratch_of<WinogradWeights>(bytes(sizes.weights)));
        a.sums = reinterpret_cast<int32_t*>(scratch_of<WinogradSums>(bytes(sizes.sums)));
        return a;
    }

    void multiply_winograd(const Geometry& g, const MatmulOutput& y, const Epilogue& epilogue, int64_t plane,
                           int64_t h0, int64_t lines, int64_t begin, int64_t end) const {
        WinogradArgs a = winograd(g, lines);
        const PackedWeights& packed = g.phase->weights[0];
        a.panels = reinterpret_cast<const int8_t*>(packed.panels.data());
        a.n = packed.n;
        a.w_zero_point = packed.zero_point.empty() ? nullptr : packed.zero_point.data();
        a.y = y.y;
        a.epilogue = epilogue;
        const size_t bytes = static_cast<size_t>(WinogradSizes(a.tiles(), channels).rows);
        int64_t* const rows = reinterpret_cast<int64_t*>(scratch_of<WinogradRows>(bytes));
        int64_t* y_rows = rows + a.tiles();
        for (int64_t i = 0; i < a.tiles(); ++i) rows[i] = i * channels;
        a.rows = rows;
        a.y_rows = y_rows;
        for (int64_t i = 0; i < a.tile_lines; ++i)
            for (int64_t j = 0; j < a.tile_columns; ++j)
                for (int64_t pixel_of_tile = 0; pixel_of_tile < 4; ++pixel_of_tile) {
                    const int64_t h = 2 * i + pixel_of_tile / 2, w = 2 * j + pixel_of_tile % 2;
                    *y_rows++ = h < lines && w < out[2] ? ((plane * out[1] + h0 + h) * out[2] + w) * pixel : -1;
                }
        plan.gemm_.winograd->multiply(a, begin, end);
    }

    // The units [begin, end) of one strip: panels of all groups, or blocks of channels.
    void multiply(const Geometry& g, const MatmulOutput& y, const Epilogue* epilogues, const int64_t* taps,
                  int64_t image, int64_t od, int64_t h0, int64_t lines, int64_t begin, int64_t end) const {
        const std::array<AxisPhase, 3>& axes = g.phase->axes;
        const int64_t pixels = lines * g.counts[2], parts = (pixels + kGemmRows - 1) / kGemmRows;
        const int64_t part = std::min(kGemmRows, ((pixels + parts - 1) / parts + 11) / 12 * 12);
        int64_t rows[kGemmRows], y_rows[kGemmRows];
        for (int64_t first = 0; first < pixels; first += part) {
            const int64_t m = std::min(part, pixels - first);
            const int64_t plane = image * out[0] + axes[0].first + od * axes[0].step;
            const int64_t row_step = g.width.step * channels, y_step = axes[2].step * pixel;
            int64_t h = first / g.counts[2], w = first % g.counts[2];
            for (int64_t i = 0; i < m; ++h, w = 0) {
                const int64_t line = plane * out[1] + axes[1].first + (h0 + h) * axes[1].step;
                int64_t row = h * g.height.step * g.width.size * channels + w * row_step;
                int64_t y_row = (line * out[2] + axes[2].first) * pixel + w * y_step;
                for (const int64_t end = std::min(m, i + g.counts[2] - w); i < end; ++i) {
                    rows[i] = row;
                    y_rows[i] = y_row;
                    row += row_step;
                    y_row += y_step;
                }
            }
            if (plan.is_depthwise_) {
                DepthwiseArgs a;
                a.x = reinterpret_cast<const int16_t*>(memory);
                a.rows = rows;
                a.m = m;
                a.taps = taps;
                a.tap_count = static_cast<int64_t>(g.tap_count);
                a.channels = channels;
                a.w = reinterpret_cast<const int16_t*>(g.phase->depthwise.data());
                a.y = y.y;
                a.y_rows = y_rows;
                a.epilogue = epilogues[0];
                multiply_part(y, m, begin * kPanel, std::min(end * kPanel, channels) - begin * kPanel, a,
                              [&] { plan.depthwise_.multiply(a, begin, end); });
                continue;
            }
            const int64_t panels = g.phase->weights[0].panel_count(), groups = plan.shape_.groups;
            for (int64_t group = begin / panels; group < groups && group * panels < end; ++group) {
                const PackedWeights& packed = g.phase->weights[static_cast<size_t>(group)];
                const int64_t element = y.type == OutputType::f32 ? 4 : 1;
                GemmArgs a;
                a.x = memory + group * (channels / groups) * size;
                a.rows = rows;
                a.m = m;
                a.taps = taps;
                a.tap_count = packed.tap_count;
                a.channels = packed.channels;
                a.panels = reinterpret_cast<const int8_t*>(packed.panels.data());
                a.n = packed.n;
                a.w_zero_point = packed.zero_point.empty() ? nullptr : packed.zero_point.data();
                a.w_sums = packed.sums.data();
                a.x_zero_point = activation.shifted_zero_point();
                a.y = static_cast<uint8_t*>(y.y) + group * packed.n * element;
                a.y_rows = y_rows;
                a.epilogue = epilogues[group];
                const int64_t from = std::max<int64_t>(0, begin - group * panels);
                const int64_t to = std::min(panels, end - group * panels);
                multiply_part(y, m, from * kPanel, std::min(to * kPanel, packed.n) - from * kPanel, a,
                              [&] { plan.gemm_.multiply(a, from, to); });
            }
        }
    }
};

void ConvPlan::run(const MatmulInput& x, int64_t images, const Size3& in, const MatmulOutput& y,
                   bool channels_first) const {
    zeropoint::require_valid("convolution", x, y, shape_.out_channels);
    const Size3 out = shape_.output_size(in);
    if (images == 0) return;
    if (pointwise_ != nullptr && (!channels_first || shape_.in_channels == 1))
        return pointwise_->run(x, images * in[0] * in[1] * in[2], y);
    if (turned_ != nullptr && in[2] == 1) return turned_->run(x, images, turned(in), y, channels_first);

    const int64_t size = operand_size();
    thread_local std::vector<Geometry> t_geometries;
    thread_local std::vector<int64_t> t_taps;
    thread_local std::vector<Epilogue> t_epilogues;
    t_geometries.clear();
    t_taps.clear();
    t_epilogues.clear();
    int64_t tasks = 0, elements = 0, grain = 1;
    size_t bytes = 0;
    for (const Phase& phase : phases_) {
        Geometry g = geometry(phase, images, in, out, t_taps);
        g.first_task = tasks;
        tasks += g.tiling.tasks();
        grain = std::max(grain, g.tiling.grain);
        elements = std::max(elements, g.elements);
        for (const PackedWeights& w : phase.weights) bytes += fold_bytes(w);
        t_geometries.push_back(g);
    }
    const Activation activation = activation_of(x);
    uint8_t* memory = scratch_of<FoldMemory>(bytes);
    for (Geometry& g : t_geometries) {
        g.first_epilogue = t_epilogues.size();
        int64_t first = 0;
        for (const PackedWeights& w : g.phase->weights) {
            Epilogue e = fold(gemm_, w, activation, y, first, memory);
            if (y.z != nullptr) e.z = static_cast<const uint8_t*>(y.z) + first;
            t_epilogues.push_back(e);
            memory += fold_bytes(w);
            first += w.n;
        }
    }
    prepare_output(y.y, static_cast<size_t>(images * out[0] * out[1] * out[2] * shape_.out_channels) *
                            (y.type == OutputType::f32 ? 4 : 1));

    const Task shared{*this,
                      activation,
                      static_cast<const uint8_t*>(x.x),
                      in,
                      out,
                      channels_first,
                      size,
                      shape_.in_channels,
                      shape_.out_channels};
    const std::vector<Geometry>& geometries = t_geometries;
    const int64_t* taps = t_taps.data();
    const Epilogue* epilogues = t_epilogues.data();
    const uint64_t run = 1 + g_runs.fetch_add(1, std::memory_order_relaxed);
    parallel_for(tasks, grain, [&](int64_t begin, int64_t end) {
        Task task = shared;
        task.memory = scratch_of<OperandMemory>(static_cast<size_t>((elements + kOperandSlack) * size));
        size_t phase = 0;
        for (int64_t i = begin; i < end; ++i) {
            while (i >= geometries[phase].first_task + geometries[phase].tiling.tasks()) ++phase;
            const Geometry& g = geometries[phase];
            const int64_t strip = (i - g.first_task) / g.tiling.chunks, chunk = (i - g.first_task) % g.tiling.chunks;
            const int64_t plane = strip / g.strips_per_plane, h0 = strip % g.strips_per_plane * g.lines;
            const int64_t image = plane / g.counts[0], od = plane % g.counts[0];
            const int64_t lines = std::min(g.lines, g.counts[1] - h0);
            const int64_t number = static_cast<int64_t>(phase);
            if (t_prepared.run != run || t_prepared.phase != number || t_prepared.strip != strip) {
                task.prepare(g, image, od, h0, g.winograd ? (lines + 1) / 2 * 2 : lines);
                if (g.winograd) gemm_.winograd->transform(task.winograd(g, lines));
                t_prepared = {run, number, strip};
            }
            const int64_t first = chunk * g.tiling.panels_per_chunk,
                          past = std::min(first + g.tiling.panels_per_chunk, g.units);
            if (g.winograd)
                task.multiply_winograd(g, y, epilogues[g.first_epilogue], plane, h0, lines, first, past);
            else
                task.multiply(g, y, epilogues + g.first_epilogue, taps + g.first_tap, image, od, h0, lines, first,
                              past);
        }
    });
}

}  // namespace zeropoint
