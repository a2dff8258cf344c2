#include "operators/winograd.h"

#include "cpu/machine.h"

#include <algorithm>
#include <cstdlib>

namespace zeropoint {
namespace {

// The most tiles of a block. Every panel reads the transformed inputs again, at 4 bytes a cycle or less: a share of L3
// is fast enough. More tiles save transforms of the weights, until there are so many that those no longer count.
int64_t most_tiles(int64_t channels) {
    const Machine& m = machine();
    const int64_t tile = kWinogradProducts * 2 * channels;
    const int64_t bytes = std::max(m.l2_bytes, std::min(4 * m.l2_bytes, m.l3_bytes / m.l3_cpus / 2));
    return std::max<int64_t>(1, bytes / tile);
}
// A line of tiles is not cut.
bool is_too_wide(int64_t channels, int64_t tile_columns) { return tile_columns > most_tiles(channels); }

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

bool has_winograd(const ConvShape& s) {
    const Size3 ones{1, 1, 1}, three{1, 3, 3};
    return !s.transposed && s.groups == 1 && s.kernel == three && s.stride == ones && s.dilation == ones;
}
bool has_winograd(const ConvShape& s, const WinogradKernel& kernel) {
    return has_winograd(s) && s.in_channels % kernel.multiple == 0;
}

bool winograd_is_exact(const WeightTensor& w, const ConvShape& s) {
    const int64_t depth = 9 * s.in_channels;
    for (int64_t n = 0; n < s.out_channels; ++n) {
        const int32_t zero_point = w.zero_point_of(n);
        const uint8_t* const row = static_cast<const uint8_t*>(w.data) + n * depth;
        int64_t sum = 0;
        int32_t most = 0;
        for (int64_t i = 0; i < depth; ++i) {
            const int32_t value = w.type == IntType::u8 ? row[i] : static_cast<int8_t>(row[i]);
            const int32_t size = std::abs(value - zero_point);
            sum += size;
            most = std::max(most, size);
        }
        if (most > kWinogradWeight || sum > kWinogradWeights) return false;
    }
    return true;
}

WinogradCut winograd_cut(const WinogradCosts& costs, const ConvShape& s, const WinogradOutput& out, int threads) {
    const int64_t channels = s.in_channels, panels = ceil_div(s.out_channels, kPanel);
    const int64_t columns = out.tile_columns(), all_lines = out.tile_lines();
    WinogradCut best;
    if (is_too_wide(channels, columns)) return best;
    double least = 9.0 * static_cast<double>(out.planes * out.lines * out.width) *
                   static_cast<double>(channels * s.out_channels) / threads;
    const double c = static_cast<double>(channels), products = kWinogradProducts;
    const double input = products * costs.input * c;
    const double weights = products * costs.weight * c * kPanel;
    const double sums = products * (costs.product * c + costs.sum) * kPanel;
    const auto consider = [&](int64_t lines, int64_t together) {
        const int64_t blocks = ceil_div(out.planes * ceil_div(all_lines, lines), together);
        const double tiles = static_cast<double>(lines * columns * together);
        for (int64_t chunks = 1; chunks <= std::min<int64_t>(panels, threads); ++chunks) {
            const int64_t per = ceil_div(panels, chunks);
            const double task = tiles * input + static_cast<double>(per) * (weights + tiles * sums);
            const double time = static_cast<double>(ceil_div(blocks * ceil_div(panels, per), threads)) * task;
            if (time < least) {
                least = time;
                best = {lines, together, per};
            }
        }
    };
    const int64_t most = most_tiles(channels), line = columns;
    for (int64_t lines = 1; lines <= all_lines && lines * line <= most; ++lines) consider(lines, 1);
    for (int64_t together = 2; together <= out.planes && together * all_lines * line <= most; ++together)
        consider(all_lines, together);
    return best;
}

double winograd_scratch(const ConvShape& s, int64_t images, const Size3& out) {
    const WinogradOutput o{images * out[0], out[1], out[2]};
    if (!has_winograd(s) || s.in_channels % kWinogradMultiple != 0 || is_too_wide(s.in_channels, o.tile_columns()))
        return 0;
    const int64_t lines = std::min(o.tile_lines() * o.planes, most_tiles(s.in_channels) / o.tile_columns());
    const int64_t tiles = std::max<int64_t>(1, lines) * o.tile_columns();
    const WinogradSizes sizes(tiles, s.in_channels);
    // The operand is smaller than what it is transformed to.
    return static_cast<double>(sizes.inputs + sizes.all() + tiles * kTilePixels * s.out_channels);
}

}  // namespace zeropoint
