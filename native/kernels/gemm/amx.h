// gemm with AMX tiles, for any Tiles with the functions of simd/tiles.h. Blocks of 32 rows x 32 output channels: tiles
// 0..3 hold the sums, 4 and 5 the activations of 16 rows each, 6 and 7 the weights of 16 output channels each.
#pragma once

#include "kernels/gemm/gemm.h"

#include <cstring>

namespace zeropoint {
namespace {

constexpr PanelLayout kAmxLayout = {4, 64};
constexpr int64_t kTileRows = 16;

// Up to 16 rows as a tile can load them: from memory, where they are equally far apart, else through a copy.
class TileSource {
public:
    TileSource(const GemmArgs& a, int64_t m, uint8_t* copy)
        : x_(static_cast<const uint8_t*>(a.x)),
          rows_(a.rows + m),
          copy_(copy) {
        count_ = a.m - m < kTileRows ? a.m - m : kTileRows;
        stride_ = count_ > 1 ? rows_[1] - rows_[0] : 0;
        spaced_ = count_ == kTileRows;
        for (int64_t i = 1; i < count_; ++i) spaced_ = spaced_ && rows_[i] - rows_[i - 1] == stride_;
    }

    template <int kTile, class Tiles>
    void load(Tiles& tiles, int64_t offset) const {
        if (spaced_) return tiles.template load<kTile>(x_ + rows_[0] + offset, stride_);
        for (int64_t i = 0; i < count_; ++i) std::memcpy(copy_ + i * 64, x_ + rows_[i] + offset, 64);
        tiles.template load<kTile>(copy_, 64);
    }

private:
    const uint8_t* x_;
    const int64_t* rows_;
    uint8_t* copy_;
    int64_t count_, stride_;
    bool spaced_;
};

// sums[2 * panel + rows / 16][16][16] = up to 32 rows from m on times kPanels panels.
template <int kPanels, bool kBothRows, class Tiles>
inline void accumulate_amx(Tiles& tiles, const GemmArgs& a, int64_t m, const int8_t* panel, int64_t panel_size,
                           int32_t* sums) {
    alignas(64) uint8_t copies[2][kTileRows * 64] = {};
    const TileSource low(a, m, copies[0]), high(a, kBothRows ? m + kTileRows : m, copies[1]);
    tiles.template zero<0>();
    if constexpr (kBothRows) tiles.template zero<1>();
    if constexpr (kPanels == 2) tiles.template zero<2>();
    if constexpr (kBothRows && kPanels == 2) tiles.template zero<3>();
    const int64_t padded = kAmxLayout.padded(a.channels);
    for (int64_t t = 0; t < a.tap_count; ++t)
        for (int64_t c = 0; c < padded; c += 64, panel += 64 * kPanel) {
            tiles.template load<6>(panel, 64);
            low.load<4>(tiles, a.taps[t] + c);
            tiles.template multiply<0, 4, 6>();
            if constexpr (kBothRows) {
                high.load<5>(tiles, a.taps[t] + c);
                tiles.template multiply<1, 5, 6>();
            }
            if constexpr (kPanels == 2) {
                tiles.template load<7>(panel + panel_size, 64);
                tiles.template multiply<2, 4, 7>();
                if constexpr (kBothRows) tiles.template multiply<3, 5, 7>();
            }
        }
    constexpr int64_t kSums = kTileRows * kPanel;
    tiles.template store<0>(sums, 64);
    if constexpr (kBothRows) tiles.template store<1>(sums + kSums, 64);
    if constexpr (kPanels == 2) tiles.template store<2>(sums + 2 * kSums, 64);
    if constexpr (kBothRows && kPanels == 2) tiles.template store<3>(sums + 3 * kSums, 64);
}

// Calls finish(panel, m, rows, sums) for every block of up to 16 rows x 16 output channels.
template <class Tiles, class Finish>
inline void multiply_amx(const GemmArgs& a, int64_t begin, int64_t end, const Finish& finish) {
    const int64_t panel_size = a.tap_count * kAmxLayout.padded(a.channels) * kPanel;
    constexpr int64_t kSums = kTileRows * kPanel;
    alignas(64) int32_t sums[4 * kSums];
    Tiles tiles;
    for (int64_t p = begin; p < end; p += 2)
        for (int64_t m = 0; m < a.m; m += 2 * kTileRows) {
            const bool both_panels = p + 1 < end, both_rows = a.m - m > kTileRows;
            const int8_t* panel = a.panels + p * panel_size;
            if (both_panels)
                both_rows ? accumulate_amx<2, true>(tiles, a, m, panel, panel_size, sums)
                          : accumulate_amx<2, false>(tiles, a, m, panel, panel_size, sums);
            else
                both_rows ? accumulate_amx<1, true>(tiles, a, m, panel, panel_size, sums)
                          : accumulate_amx<1, false>(tiles, a, m, panel, panel_size, sums);
            for (int64_t j = 0; j <= (both_panels ? 1 : 0); ++j)
                for (int64_t i = 0; i <= (both_rows ? 1 : 0); ++i) {
                    const int64_t first = m + i * kTileRows;
                    finish(p + j, first, a.m - first < kTileRows ? a.m - first : kTileRows, sums + (2 * j + i) * kSums);
                }
        }
}

}  // namespace
}  // namespace zeropoint
