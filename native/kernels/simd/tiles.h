// AMX tile registers with the instructions. check/tiles.h has the same functions in plain C++, for CPUs without AMX.
// Palette 1: eight tiles of 16 rows x 64 bytes. The tile number is part of the instruction, so it is a template
// argument.
#pragma once

#include <cstdint>
#include <immintrin.h>

namespace zeropoint {
namespace {

struct AmxTiles {
    // Eight full tiles, for as long as the object lives.
    AmxTiles() {
        struct alignas(64) Config {
            uint8_t palette = 1, start_row = 0, reserved[14] = {};
            uint16_t column_bytes[16] = {};
            uint8_t rows[16] = {};
        } config;
        for (int t = 0; t < 8; ++t) {
            config.column_bytes[t] = 64;
            config.rows[t] = 16;
        }
        fence(&config);
        _tile_loadconfig(&config);
        fence(&config);
    }
    ~AmxTiles() { _tile_release(); }
    AmxTiles(const AmxTiles&) = delete;
    AmxTiles& operator=(const AmxTiles&) = delete;

    // gcc's intrinsics paste the number into the instruction, so it must be spelled out.
#define ZEROPOINT_EACH_TILE(call)                                                                                      \
    if constexpr (kTile == 0) call(0);                                                                                 \
    if constexpr (kTile == 1) call(1);                                                                                 \
    if constexpr (kTile == 2) call(2);                                                                                 \
    if constexpr (kTile == 3) call(3);                                                                                 \
    if constexpr (kTile == 4) call(4);                                                                                 \
    if constexpr (kTile == 5) call(5);                                                                                 \
    if constexpr (kTile == 6) call(6);                                                                                 \
    if constexpr (kTile == 7) call(7);

    template <int kTile>
    void zero() {
        ZEROPOINT_EACH_TILE(_tile_zero)
    }
    // Row r from data + r * stride (bytes).
    template <int kTile>
    void load(const void* data, int64_t stride) {
#define ZEROPOINT_LOAD(tile) _tile_loadd(tile, data, stride)
        fence(data);
        ZEROPOINT_EACH_TILE(ZEROPOINT_LOAD)
        fence(data);
#undef ZEROPOINT_LOAD
    }
    template <int kTile>
    void store(void* data, int64_t stride) {
#define ZEROPOINT_STORE(tile) _tile_stored(tile, data, stride)
        ZEROPOINT_EACH_TILE(ZEROPOINT_STORE)
#undef ZEROPOINT_STORE
    }
#undef ZEROPOINT_EACH_TILE
    // sum[m][n] += the sum over k of a[m][k] (u8) * b[k / 4][4 * n + k % 4] (s8), for 64 k; wraps.
    // Sums in tiles 0..3, a in 4 or 5, b in 6 or 7, as a block of 2 x 2 has them.
    template <int kSum, int kA, int kB>
    void multiply() {
        static_assert(kSum == kA - 4 + 2 * (kB - 6));
        if constexpr (kSum == 0) _tile_dpbusd(0, 4, 6);
        if constexpr (kSum == 1) _tile_dpbusd(1, 5, 6);
        if constexpr (kSum == 2) _tile_dpbusd(2, 4, 7);
        if constexpr (kSum == 3) _tile_dpbusd(3, 5, 7);
    }

private:
    // On both sides of a load: gcc's intrinsics do not say that they read what the address points to, so what was
    // written there before might come too late, and what is written there next too early.
    static void fence(const void* data) { __asm__ volatile("" : : "r"(data) : "memory"); }
};

}  // namespace
}  // namespace zeropoint
