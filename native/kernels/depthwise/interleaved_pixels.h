// Which weights a quad, four neighbouring pixels whose bytes are interleaved, is multiplied with: a tile is two outputs
// side by side, and each has weights for its place (see in_place_vnni.h).
#pragma once

#include "kernels/depthwise/in_place.h"

namespace zeropoint {
namespace {

constexpr int kQuad = 4;                                  // pixels that are interleaved
constexpr int kColumns = 2;                               // outputs of a tile, side by side
constexpr int kMostRows = 7, kMostLines = kMostRows + 2;  // of a kernel, and that a tile reads

// Which outputs of a tile read pixels of a quad, and where their weights are.
template <int kWidth, int kStride>
struct Places {
    static constexpr int kPixels = (kColumns - 1) * kStride + kWidth, kQuads = (kPixels + kQuad - 1) / kQuad;

    // The kernel column that an output has at the first pixel of a quad.
    static constexpr int first(int quad, int column) { return kQuad * quad - column * kStride; }
    static constexpr bool reads(int quad, int column) {
        return first(quad, column) + kQuad > 0 && first(quad, column) < kWidth;
    }
    // The number of a set of weights in those of a kernel row.
    static constexpr int set(int quad, int column) {
        int number = 0;
        for (int i = 0; i < quad * kColumns + column; ++i) number += reads(i / kColumns, i % kColumns) ? 1 : 0;
        return number;
    }
    static constexpr int kSets = set(kQuads, 0);
};

}  // namespace
}  // namespace zeropoint
