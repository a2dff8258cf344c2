#include "cpu/peaks.h"

#include "cpu/machine.h"
#include "cpu/memory.h"
#include "cpu/threads.h"

#include <algorithm>
#include <chrono>
#include <thread>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace zeropoint {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kEach = 2.5e-3;  // seconds for one figure
constexpr double kShort = 1e-4;   // of one try: short, so that some are not disturbed

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// The best rate of many short tries. `work(n)` does n rounds of `amount` each.
template <class Work>
double best_rate(double amount, const Work& work) {
    int64_t rounds = 1;
    for (double took = 0; took < kShort; rounds *= 2) {
        took = kEach;
        for (int i = 0; i < 3; ++i) {  // one alone may be long because it was interrupted
            const Clock::time_point start = Clock::now();
            work(rounds);
            took = std::min(took, since(start));
        }
    }
    double best = 0;
    constexpr int kTries = 10;  // at least, if all the time went to a neighbour
    int tries = 0;
    for (const Clock::time_point begin = Clock::now(); tries < kTries || since(begin) < kEach; ++tries) {
        const Clock::time_point start = Clock::now();
        work(rounds);
        best = std::max(best, amount * static_cast<double>(rounds) / since(start));
    }
    return best;
}

#if defined(__x86_64__)

#define ZP_CLOBBERED                                                                                                   \
    "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12",         \
        "xmm13", "xmm14", "xmm15", "memory"
// Twelve sums that do not wait for each other.
#define ZP_TWELVE(I) I(0) I(1) I(2) I(3) I(4) I(5) I(6) I(7) I(8) I(9) I(10) I(11)
constexpr double kSums = 12;

#define ZP_VNNI(n) "vpdpbusd %%zmm14, %%zmm15, %%zmm" #n "\n\t"
#define ZP_AVX_VNNI(n) "%{vex%} vpdpbusd %%ymm14, %%ymm15, %%ymm" #n "\n\t"
#define ZP_FMA512(n) "vfmadd231ps %%zmm14, %%zmm15, %%zmm" #n "\n\t"
#define ZP_FMA256(n) "vfmadd231ps %%ymm14, %%ymm15, %%ymm" #n "\n\t"
#define ZP_BYTES256(n)                                                                                                 \
    "vpmaddubsw %%ymm14, %%ymm15, %%ymm12\n\t"                                                                         \
    "vpmaddwd %%ymm12, %%ymm15, %%ymm13\n\t"                                                                           \
    "vpaddd %%ymm13, %%ymm" #n ", %%ymm" #n "\n\t"

#define ZP_LOOP(name, instruction)                                                                                     \
    void name(int64_t rounds) {                                                                                        \
        __asm__ volatile("vpxor %%xmm14, %%xmm14, %%xmm14\n\tvpxor %%xmm15, %%xmm15, %%xmm15\n\t"                      \
                         "1:\n\t" ZP_TWELVE(instruction) "dec %0\n\tjnz 1b\n\tvzeroupper"                              \
                         : "+r"(rounds)                                                                                \
                         :                                                                                             \
                         : ZP_CLOBBERED, "cc");                                                                        \
    }
ZP_LOOP(vnni_rounds, ZP_VNNI)
ZP_LOOP(avx_vnni_rounds, ZP_AVX_VNNI)
ZP_LOOP(fma512_rounds, ZP_FMA512)
ZP_LOOP(fma256_rounds, ZP_FMA256)
ZP_LOOP(bytes256_rounds, ZP_BYTES256)

constexpr int64_t kStretch = 512;  // bytes of one round of reading
#define ZP_READ256(n) "vmovdqu " #n "*32(%0), %%ymm" #n "\n\t"
#define ZP_READ512(n) "vmovdqu64 " #n "*64(%0), %%zmm" #n "\n\t"
#define ZP_EIGHT(I) I(0) I(1) I(2) I(3) I(4) I(5) I(6) I(7)

void read_all(const uint8_t* data, int64_t bytes) {
    const uint8_t* end = data + bytes;
    if (cpu_features().has(feature::avx512))
        __asm__ volatile("1:\n\t" ZP_EIGHT(ZP_READ512) "add $512, %0\n\tcmp %1, %0\n\tjb 1b\n\tvzeroupper"
                         : "+r"(data)
                         : "r"(end)
                         : ZP_CLOBBERED, "cc");
    else
        __asm__ volatile("1:\n\t" ZP_EIGHT(ZP_READ256) "add $256, %0\n\tcmp %1, %0\n\tjb 1b\n\tvzeroupper"
                         : "+r"(data)
                         : "r"(end)
                         : ZP_CLOBBERED, "cc");
}

// Out of all caches.
void flush(const uint8_t* data, int64_t bytes) {
    constexpr int64_t kLine = 64;
    for (int64_t i = 0; i < bytes; i += kLine) _mm_clflush(data + i);
    _mm_mfence();
}

#if defined(__linux__)
struct alignas(64) TileConfig {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t column_bytes[16] = {};
    uint8_t rows[16] = {};
};

// Four sums of two tiles by two.
__attribute__((target("amx-tile,amx-int8"), noinline)) void amx_rounds(int64_t rounds) {
    TileConfig config;
    for (int t = 0; t < 8; ++t) {
        config.column_bytes[t] = 64;
        config.rows[t] = 16;
    }
    __asm__ volatile("" : : "r"(&config) : "memory");
    _tile_loadconfig(&config);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    _tile_zero(6);
    _tile_zero(7);
    for (; rounds > 0; --rounds) {
        _tile_dpbusd(0, 4, 6);
        _tile_dpbusd(1, 4, 7);
        _tile_dpbusd(2, 5, 6);
        _tile_dpbusd(3, 5, 7);
    }
    _tile_release();
}
#endif

// The instruction that multiplies bytes at each level, and how many products a round of it makes.
struct ProductLoop {
    Isa isa;
    double amount;
    void (*rounds)(int64_t);
};
constexpr ProductLoop kProductLoops[] = {
    {Isa::avx2, kSums * 32, bytes256_rounds},
    {Isa::avx512, kSums * 32, bytes256_rounds},  // its byte kernels are AVX2's
    {Isa::avx_vnni, kSums * 32, avx_vnni_rounds},
    {Isa::vnni, kSums * 64, vnni_rounds},
#if defined(__linux__)
    {Isa::amx, 4 * 16 * 16 * 64, amx_rounds},
#endif
};

void measure_products(Peaks& p) {
    const CpuFeatures& f = cpu_features();
    for (const ProductLoop& loop : kProductLoops)
        if (f.has(needs_of(loop.isa))) p.products.emplace_back(loop.isa, best_rate(loop.amount, loop.rounds));
    if (f.has(feature::avx2)) p.float_macs = best_rate(kSums * 8, fma256_rounds);
    if (f.has(feature::avx512)) p.float_macs = std::max(p.float_macs, best_rate(kSums * 16, fma512_rounds));
}

bool can_read() { return cpu_features().has(feature::avx2); }

#else

void measure_products(Peaks&) {}
constexpr int64_t kStretch = 512;
void read_all(const uint8_t*, int64_t) {}
void flush(const uint8_t*, int64_t) {}
bool can_read() { return false; }

#endif

void measure_reading(Peaks& p) {
    if (!can_read()) return;
    const Machine& m = machine();
    constexpr int64_t kMost = int64_t{8} << 20;
    const int64_t l3 = std::min(kMost, std::max(2 * m.l2_bytes, m.l3_bytes / 4)) / kStretch * kStretch;
    AlignedBytes memory(static_cast<size_t>(std::max(l3, kMost)));
    const auto rate = [&](int64_t bytes) {
        bytes = bytes / kStretch * kStretch;
        return best_rate(static_cast<double>(bytes), [&](int64_t rounds) {
            for (; rounds > 0; --rounds) read_all(memory.data(), bytes);
        });
    };
    p.l1_bytes = rate(m.l1_bytes / 2);
    p.l2_bytes = rate(m.l2_bytes / 2);
    p.l3_bytes = rate(l3);
    p.threads = num_threads();
    constexpr int kTries = 2;
    const auto flushed = [&](auto read) {
        double best = 0;
        for (int i = 0; i < kTries; ++i) {
            flush(memory.data(), kMost);
            const Clock::time_point start = Clock::now();
            read();
            best = std::max(best, static_cast<double>(kMost) / since(start));
        }
        return best;
    };
    p.memory_bytes = flushed([&] { read_all(memory.data(), kMost); });
    p.all_memory_bytes = flushed([&] {
        parallel_for(kMost / kStretch, 128, [&](int64_t begin, int64_t end) {
            read_all(memory.data() + begin * kStretch, (end - begin) * kStretch);
        });
    });
    p.all_memory_bytes = std::max(p.all_memory_bytes, p.memory_bytes);
}

// The best time of a job without work: neighbours only add to it.
double hand_over(int tries, std::chrono::microseconds between) {
    double best = 1;
    for (int i = 0; i < tries; ++i) {
        if (between.count() > 0) std::this_thread::sleep_for(between);
        const Clock::time_point start = Clock::now();
        parallel_for(num_threads(), 1, [](int64_t, int64_t) {});
        best = std::min(best, since(start));
    }
    return best;
}

Peaks measured() {
    Peaks p;
    measure_products(p);
    measure_reading(p);
    if (num_threads() > 1) {
        hand_over(1, {});  // starts the threads
        p.hand_over_seconds = hand_over(101, {});
        p.wake_seconds = hand_over(5, std::chrono::microseconds(500));
    }
    return p;
}

}  // namespace

double Peaks::macs(Isa isa) const {
    for (const auto& [level, rate] : products)
        if (level == isa) return rate;
    return 0;
}

const Peaks& peaks() {
    static const Peaks found = measured();
    return found;
}

}  // namespace zeropoint
