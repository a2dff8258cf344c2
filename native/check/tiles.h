// The functions of kernels/simd/tiles.h in plain C++, so that the logic of the amx kernel is checked on every CPU.
#pragma once

#include "kernels/gemm/amx.h"
#include "kernels/gemm/epilogue.h"
#include "kernels/gemm/shifted.h"
#include "kernels/simd/portable.h"
#include "kernels/conversions.h"

#include <array>

namespace zeropoint::check {

struct PlainTiles {
    template <int kTile>
    void zero() {
        tiles[kTile].fill(0);
    }
    template <int kTile>
    void load(const void* data, int64_t stride) {
        for (int64_t row = 0; row < 16; ++row)
            std::memcpy(tiles[kTile].data() + row * 64, static_cast<const uint8_t*>(data) + row * stride, 64);
    }
    template <int kTile>
    void store(void* data, int64_t stride) {
        for (int64_t row = 0; row < 16; ++row)
            std::memcpy(static_cast<uint8_t*>(data) + row * stride, tiles[kTile].data() + row * 64, 64);
    }
    template <int kSum, int kA, int kB>
    void multiply() {
        for (size_t m = 0; m < 16; ++m)
            for (size_t n = 0; n < 16; ++n) {
                uint32_t sum;
                std::memcpy(&sum, tiles[kSum].data() + m * 64 + n * 4, sizeof sum);
                for (size_t k = 0; k < 64; ++k)
                    sum += static_cast<uint32_t>(tiles[kA][m * 64 + k] *
                                                 static_cast<int8_t>(tiles[kB][k / 4 * 64 + 4 * n + k % 4]));
                std::memcpy(tiles[kSum].data() + m * 64 + n * 4, &sum, sizeof sum);
            }
    }
    std::array<uint8_t, 1024> tiles[8];
};

// gemm_amx, but for its tiles and vectors.
inline const GemmKernel& gemm_amx_emulated() {
    constexpr auto multiply = [](const GemmArgs& a, int64_t begin, int64_t end) {
        uint32_t sums[kGemmRows];
        if (a.w_zero_point != nullptr) row_sums(a, sums);
        multiply_amx<PlainTiles>(a, begin, end, [&](int64_t p, int64_t m, int64_t rows, int32_t* acc) {
            if (a.w_zero_point != nullptr)
                for (int64_t i = 0; i < rows * kPanel; ++i)
                    acc[i] = low32(int64_t{acc[i]} -
                                   int64_t{sums[m + i / kPanel]} * a.w_zero_point[p * kPanel + i % kPanel]);
            PanelEpilogue<Portable>(a.epilogue, a.y, p, a.n - p * kPanel)(acc, rows, a.y_rows + m);
        });
    };
    static const GemmKernel kernel = {kAmxLayout, Operand::shifted, convert_shifted, multiply};
    return kernel;
}

}  // namespace zeropoint::check
