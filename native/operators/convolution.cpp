#include "operators/convolution.h"

#include "cpu/memory.h"
#include "cpu/threads.h"
#include "kernels/registry.h"
#include "operators/fused_output.h"
#include "operators/scratch.h"
#include "operators/convolution_strips.h"
#include "operators/winograd.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <stdexcept>

namespace zeropoint {
namespace {

struct FoldMemory;
struct OperandMemory;
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

// Every output reads the input of its own place.
bool is_pointwise(const ConvShape& s) {
    const Size3 ones{1, 1, 1}, zeros{};
    return s.kernel == ones && s.stride == ones && s.padding == zeros && s.output_padding == zeros && s.groups == 1;
}

// How many small groups fit a panel. They then are one, with weights that count nothing between them: as many
// multiplications as in panels that are mostly empty, but in longer loops.
int64_t joinable_groups(const WeightTensor& w, const ConvShape& s, Operand operand) {
    const int64_t n = s.out_channels / s.groups;
    // A shifted operand corrects weight zero points with sums over all channels of a group: they must not grow.
    for (int64_t i = 0; operand == Operand::shifted && i < s.out_channels; ++i)
        if (w.zero_point_of(i) != (w.type == IntType::u8 ? 128 : 0)) return 1;
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
        std::memset(to, w.zero_point_of(n), static_cast<size_t>(taps * row));
        const int64_t place = n / outputs % together * channels;
        for (int64_t t = 0; t < taps; ++t)
            std::memcpy(to + t * row + place, from + t * channels, static_cast<size_t>(channels));
    }
    return joined;
}

}  // namespace

// A phase over inputs of a given size.
struct ConvPlan::Geometry {
    const Phase* phase;
    Strips strips;
    // Winograd's tiles; none: the plain kernel.
    int64_t tile_columns = 0;
    int64_t together = 1;  // strips that a task takes at once
    int64_t all_strips = 0;
    int64_t units = 0;
    Tiling tiling{};  // of such blocks of strips
    int64_t first_task = 0;
    size_t first_epilogue = 0;
};

// All phases, and how they are shared out.
struct ConvPlan::Cut {
    std::vector<Geometry> geometries;
    std::vector<int64_t> taps;
    int64_t tasks = 0, grain = 1;
    int64_t elements = 0;  // of the largest operand
};

ConvPlan::~ConvPlan() = default;

bool ConvPlan::saves_multiplications(const ConvShape& shape, const GemmKernel& kernel) {
    return kernel.winograd != nullptr && has_winograd(shape, *kernel.winograd);
}

int64_t ConvPlan::bytes_read_again(const ConvShape& shape, int64_t bytes, int64_t places) {
    return is_pointwise(shape) ? LinearPlan::bytes_read_again(bytes, places) : bytes;
}

ConvPlan::ConvPlan(const WeightTensor& w, const ConvShape& shape)
    : ConvPlan(w, shape, {zeropoint::kernels().gemm(), zeropoint::kernels().depthwise()}) {}

ConvPlan::ConvPlan(const WeightTensor& w, const ConvShape& shape, const ConvKernels& kernels)
    : given_(shape),
      shape_(shape),
      gemm_(kernels.gemm) {
    require_valid(shape);
    zeropoint::require_valid("convolution", w, shape.out_channels);
    if (shape.is_depthwise()) {
        depthwise_ = std::make_unique<DepthwisePlan>(w, shape, kernels.depthwise);
        if (is_line(shape) && !depthwise_->is_in_place())
            turned_ = std::make_unique<ConvPlan>(w, turned(shape), kernels);
        return;
    }
    if (is_pointwise(shape)) pointwise_ = std::make_unique<LinearPlan>(w, shape.out_channels, shape.in_channels, gemm_);
    if (is_column(shape)) turned_ = std::make_unique<ConvPlan>(w, turned(shape), kernels);
    winograd_ = saves_multiplications(shape, gemm_) && winograd_is_exact(w, shape);
    WeightTensor weights = w;
    std::vector<uint8_t> joined;
    const int64_t together = joinable_groups(w, shape, gemm_.operand);
    if (together > 1) {
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
    if (!taps.empty() || empty_pack_ == kNone) {
        p.pack = packs_.size();
        packs_.push_back(pack(w, taps));
        if (taps.empty()) empty_pack_ = p.pack;
    } else {
        p.pack = empty_pack_;
    }
    phases_.push_back(std::move(p));
}

ConvPlan::Pack ConvPlan::pack(const WeightTensor& w, const std::vector<std::vector<int64_t>>& taps) const {
    Pack made;
    const int64_t stored_taps = shape_.kernel[0] * shape_.kernel[1] * shape_.kernel[2];
    const int64_t n = shape_.out_channels / shape_.groups;
    for (int64_t g = 0; g < shape_.groups; ++g)
        made.push_back(pack_weights(gemm_, w, g * n, n, stored_taps, shape_.in_channels / shape_.groups, taps));
    return made;
}

ConvPlan::Geometry ConvPlan::geometry(const Phase& phase, int64_t images, const Size3& out,
                                      std::vector<int64_t>& taps) const {
    Geometry g{&phase, Strips(phase.axes, out)};
    Strips& strips = g.strips;
    const Size3& counts = strips.counts;
    const int64_t planes = strips.planes(images);
    if (planes * counts[1] * counts[2] == 0) return g;
    strips.lines = strip_lines(planes, counts[1], counts[2]);
    WinogradCut winograd;
    if (winograd_)
        winograd = winograd_cut(gemm_.winograd->costs, shape_, {planes, counts[1], counts[2]}, num_threads());
    if (winograd.lines > 0) {
        g.tile_columns = (counts[2] + kWinogradTile - 1) / kWinogradTile;
        g.together = winograd.together;
        strips.lines = winograd.lines * kWinogradTile;
        strips.width = Extent(phase.axes[2], g.tile_columns * kWinogradTile);
    }
    strips.place(shape_.in_channels, phase.merged, taps);
    int64_t macs = 0;
    for (const PackedWeights& w : packs_[phase.pack]) {
        macs += w.macs_per_row() * strips.pixels();
        g.units += w.panel_count();
    }
    g.all_strips = planes * strips.per_plane;
    g.tiling = tiling(g.all_strips, macs, g.units);
    if (winograd.lines > 0) {
        g.tiling.strips = (g.all_strips + g.together - 1) / g.together;
        g.tiling.panels_per_chunk = winograd.panels_per_chunk;
        g.tiling.chunks = (g.units + winograd.panels_per_chunk - 1) / winograd.panels_per_chunk;
        g.tiling.grain = 1;
    }
    return g;
}

ConvPlan::Cut ConvPlan::cut(int64_t images, const Size3& out) const {
    Cut c;
    for (const Phase& phase : phases_) {
        Geometry g = geometry(phase, images, out, c.taps);
        g.first_task = c.tasks;
        g.first_epilogue = phase.pack * packs_[0].size();
        c.tasks += g.tiling.tasks();
        c.grain = std::max(c.grain, g.tiling.grain);
        c.elements = std::max(c.elements, g.strips.elements);
        c.geometries.push_back(g);
    }
    return c;
}

// Where one place of the input makes a row, and is as the kernel wants it: a shifted operand of unsigned activations,
// of which no kernel reads beyond the channels.
bool ConvPlan::reads_in_place(const Activation& activation, bool channels_first) const {
    const Size3 ones{1, 1, 1}, zeros{};
    return gemm_.operand == Operand::shifted && !activation.is_signed && !channels_first && !shape_.transposed &&
           shape_.kernel == ones && shape_.padding == zeros &&
           shape_.in_channels / shape_.groups % gemm_.layout.multiple == 0;
}

// One run of a plan, as its tasks see it.
struct ConvPlan::Task {
    const ConvPlan& plan;
    const StripInput input;
    const Size3 out;
    const int64_t channels, pixel;  // channels of the input; elements of a y pixel
    const bool in_place;            // the kernel reads the input itself
    uint8_t* memory = nullptr;

    // visit(strip, its lines of tiles, its first tile) for the strips of a block.
    template <class Visit>
    void each_strip(const Geometry& g, int64_t block, const Visit& visit) const {
        const int64_t first = block * g.together, past = std::min(first + g.together, g.all_strips);
        int64_t tile = 0;
        for (int64_t i = first; i < past; ++i) {
            const Strip strip = g.strips.at(i);
            const int64_t tile_lines = (strip.lines + kWinogradTile - 1) / kWinogradTile;
            visit(strip, tile_lines, tile);
            tile += tile_lines * g.tile_columns;
        }
    }

    WinogradArgs winograd(const Geometry& g, int64_t block) const {
        WinogradArgs a;
        a.channels = channels;
        each_strip(g, block, [&](const Strip&, int64_t lines, int64_t) { a.tiles += lines * g.tile_columns; });
        const WinogradSizes sizes(g.strips.lines / kWinogradTile * g.tile_columns * g.together, channels);
        const auto bytes = [](int64_t n) { return static_cast<size_t>(n); };
        a.inputs = reinterpret_cast<int16_t*>(scratch_of<WinogradInputs>(bytes(sizes.inputs)));
        a.weights = reinterpret_cast<int16_t*>(scratch_of<WinogradWeights>(bytes(sizes.weights)));
        a.sums = reinterpret_cast<int32_t*>(scratch_of<WinogradSums>(bytes(sizes.sums)));
        return a;
    }

    // Transforms the inputs of a block of strips, one after the other in the same memory.
    void transform(const Geometry& g, int64_t block) const {
        const WinogradArgs a = winograd(g, block);
        each_strip(g, block, [&](const Strip& strip, int64_t tile_lines, int64_t tile) {
            Strip read = strip;
            read.lines = tile_lines * kWinogradTile;
            input.prepare(g.strips, read, memory);
            plan.gemm_.winograd->transform(a,
                                           {memory, g.strips.width.size * channels, tile_lines, g.tile_columns, tile});
        });
    }

    void multiply_winograd(const Geometry& g, const MatmulOutput& y, const Epilogue& epilogue, int64_t block,
                           int64_t begin, int64_t end) const {
        WinogradArgs a = winograd(g, block);
        const PackedWeights& packed = plan.packs_[g.phase->pack][0];
        a.panels = reinterpret_cast<const int8_t*>(packed.panels.data());
        a.n = packed.n;
        a.w_zero_point = packed.zero_point.empty() ? nullptr : packed.zero_point.data();
        a.w_sums = packed.sums.data();
        a.x_zero_point = input.activation.shifted_zero_point();
        a.y = y.y;
        a.epilogue = epilogue;
        const size_t bytes = static_cast<size_t>(WinogradSizes(a.tiles, channels).rows);
        int64_t *tile_rows = reinterpret_cast<int64_t*>(scratch_of<WinogradRows>(bytes)), *const out_rows =
                                                                                              tile_rows +
                                                                                              a.tiles * kTilePixels;
        // What is to be combined with another tensor is made elsewhere.
        const int64_t first = begin * kPanel, columns = std::min(end * kPanel, packed.n) - first;
        uint8_t* made = nullptr;
        if (y.then != nullptr)
            a.y = made = scratch_of<PartMemory>(static_cast<size_t>(a.tiles * kTilePixels * columns));
        a.y_rows = tile_rows;
        int64_t pixels = 0;
        each_strip(g, block, [&](const Strip& strip, int64_t tile_lines, int64_t) {
            const int64_t line = (strip.image * out[0] + strip.depth) * out[1] + strip.line;
            for (int64_t i = 0; i < tile_lines; ++i)
                for (int64_t j = 0; j < g.tile_columns; ++j)
                    for (int64_t k = 0; k < kTilePixels; ++k) {
                        const int64_t h = i * kWinogradTile + k / kWinogradTile,
                                      w = j * kWinogradTile + k % kWinogradTile;
                        *tile_rows = kNoPixel;
                        if (h < strip.lines && w < out[2]) {
                            out_rows[pixels] = ((line + h) * out[2] + w) * pixel;
                            *tile_rows = made != nullptr ? pixels * columns - first : out_rows[pixels];
                            ++pixels;
                        }
                        ++tile_rows;
                    }
        });
        plan.gemm_.winograd->multiply(a, begin, end);
        if (made != nullptr)
            combine(y, made, static_cast<uint8_t*>(y.y) + first, out_rows, pixels, columns);
        else if (y.table != nullptr)
            look_up(y.table, static_cast<uint8_t*>(y.y) + first, out_rows, pixels, columns);
    }

    // The units [begin, end) of one strip: panels of all groups.
    void multiply(const Geometry& g, const MatmulOutput& y, const Epilogue* epilogues, const int64_t* taps,
                  const Strip& strip, int64_t begin, int64_t end) const {
        // Whole lines, or equal parts of one.
        const int64_t width = g.strips.counts[2], pixels = strip.lines * width;
        const auto up = [](int64_t n, int64_t d) { return (n + d - 1) / d; };
        const auto equal = [&](int64_t n, int64_t most) { return up(n, up(n, most)); };
        const bool whole = width <= kGemmRows;
        const int64_t part = whole ? equal(strip.lines, kGemmRows / width) * width : equal(width, kGemmRows);
        int64_t rows[kGemmRows], y_rows[kGemmRows];
        for (int64_t first = 0, m = 0; first < pixels; first += m) {
            m = std::min(part, whole ? pixels - first : width - first % width);
            g.strips.rows(strip, first, m, channels, out, pixel, rows, y_rows);
            if (in_place) g.strips.rows_in_place(strip, first, m, channels, input.in, rows);
            const Pack& pack = plan.packs_[g.phase->pack];
            const int64_t panels = pack[0].panel_count(), groups = plan.shape_.groups;
            for (int64_t group = begin / panels; group < groups && group * panels < end; ++group) {
                const PackedWeights& packed = pack[static_cast<size_t>(group)];
                const int64_t element = y.type == OutputType::f32 ? 4 : 1;
                GemmArgs a;
                a.x = (in_place ? input.x : memory) + group * (channels / groups) * input.size;
                a.rows = rows;
                a.m = m;
                a.run = std::min(m, width);
                a.row_step = (in_place ? plan.shape_.stride[2] : g.strips.width.step) * channels;
                a.taps = taps;
                a.tap_count = packed.tap_count;
                a.channels = packed.channels;
                a.panels = reinterpret_cast<const int8_t*>(packed.panels.data());
                a.n = packed.n;
                a.w_zero_point = packed.zero_point.empty() ? nullptr : packed.zero_point.data();
                a.w_sums = packed.sums.data();
                a.x_zero_point = input.activation.shifted_zero_point();
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
    if (y.function != nullptr)
        throw std::invalid_argument(
            "convolution: only a 1x1 convolution of stride 1 can have a function of float32 in its epilogue, and only "
            "if the channels of its input are innermost");
    if (turned_ != nullptr && in[depthwise_ != nullptr ? 1 : 2] == 1)
        return turned_->run(x, images, turned(in), y, channels_first);
    if (depthwise_ != nullptr) return depthwise_->run(x, images, in, y, channels_first);

    const Cut* kept = cuts_.get({images, in, num_threads()}, [&] { return cut(images, out); });
    const Cut made = kept != nullptr ? Cut{} : cut(images, out);
    const Cut& all = kept != nullptr ? *kept : made;
    const Activation activation = activation_of(x);
    size_t bytes = 0;
    for (const Pack& pack : packs_)
        for (const PackedWeights& w : pack) bytes += fold_bytes(w);
    // Calls visit(weights, first output channel, place of their arrays) for all of them.
    const auto each = [&](const auto& visit) {
        size_t at = 0;
        for (const Pack& pack : packs_) {
            int64_t first = 0;
            for (const PackedWeights& w : pack) {
                visit(w, first, at);
                at += fold_bytes(w);
                first += w.n;
            }
        }
    };
    const auto fill = [&](uint8_t* to) {
        each([&](const PackedWeights& w, int64_t first, size_t at) {
            fold_arrays(gemm_.operand, w, activation, y, first, to + at);
        });
    };
    const uint8_t* arrays = folds_.get(gemm_.operand, activation, y, bytes, fill);
    if (arrays == nullptr) {
        uint8_t* const memory = scratch_of<FoldMemory>(bytes);
        fill(memory);
        arrays = memory;
    }
    thread_local std::vector<Epilogue> t_epilogues;
    t_epilogues.clear();
    each([&](const PackedWeights& w, int64_t first, size_t at) {
        Epilogue e = folded(w, y, arrays + at);
        if (y.z != nullptr) e.z = static_cast<const uint8_t*>(y.z) + first;
        if (y.after != nullptr) e.after = y.after + first;
        t_epilogues.push_back(e);
    });
    prepare_output(y.y, static_cast<size_t>(images * out[0] * out[1] * out[2] * shape_.out_channels) *
                            (y.type == OutputType::f32 ? 4 : 1));

    const bool shifted = gemm_.operand == Operand::shifted;
    const StripInput input{static_cast<const uint8_t*>(x.x),
                           in,
                           shape_.in_channels,
                           channels_first,
                           activation,
                           gemm_.convert,
                           gemm_.operand_size(),
                           shifted ? activation.shifted_zero_point() : 0};
    const Task shared{
        *this, input, out, shape_.in_channels, shape_.out_channels, reads_in_place(activation, channels_first)};
    const std::vector<Geometry>& geometries = all.geometries;
    const int64_t* taps = all.taps.data();
    const Epilogue* epilogues = t_epilogues.data();
    const uint64_t run = 1 + g_runs.fetch_add(1, std::memory_order_relaxed);
    parallel_for(all.tasks, all.grain, [&](int64_t begin, int64_t end) {
        Task task = shared;
        if (!task.in_place)
            task.memory = scratch_of<OperandMemory>(static_cast<size_t>((all.elements + kOperandSlack) * input.size));
        size_t phase = 0;
        for (int64_t i = begin; i < end; ++i) {
            while (i >= geometries[phase].first_task + geometries[phase].tiling.tasks()) ++phase;
            const Geometry& g = geometries[phase];
            const int64_t place = (i - g.first_task) / g.tiling.chunks, chunk = (i - g.first_task) % g.tiling.chunks;
            const int64_t number = static_cast<int64_t>(phase);
            const bool is_new = t_prepared.run != run || t_prepared.phase != number || t_prepared.strip != place;
            const int64_t first = chunk * g.tiling.panels_per_chunk,
                          past = std::min(first + g.tiling.panels_per_chunk, g.units);
            if (g.tile_columns > 0) {
                if (is_new) task.transform(g, place);
                t_prepared = {run, number, place};
                task.multiply_winograd(g, y, epilogues[g.first_epilogue], place, first, past);
                continue;
            }
            const Strip strip = g.strips.at(place);
            if (!task.in_place && is_new) {
                input.prepare(g.strips, strip, task.memory);
                t_prepared = {run, number, place};
            }
            task.multiply(g, y, epilogues + g.first_epilogue, taps + g.strips.first_tap, strip, first, past);
        }
    });
}

}  // namespace zeropoint
