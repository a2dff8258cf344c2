// The most products of bytes that one core of this machine takes up in a second, measured: what the kernels of a level
// can be compared with.
#pragma once

#include "check/clock.h"
#include "cpu/isa.h"

#include <algorithm>
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace zeropoint::check {

#if defined(__x86_64__)
// Chains that are long enough apart for the latency of the instruction.
constexpr int kPeakRounds = 20000;

// vpdpbusd: 64 products each, twelve chains.
__attribute__((target("avx512f,avx512vnni"))) inline double vnni_products() {
    __m512i s0 = _mm512_setzero_si512(), s1 = s0, s2 = s0, s3 = s0, s4 = s0, s5 = s0, s6 = s0, s7 = s0, s8 = s0,
            s9 = s0, s10 = s0, s11 = s0;
    const __m512i x = _mm512_set1_epi8(1);
    for (int i = 0; i < kPeakRounds; ++i)
        __asm__ volatile(
            "vpdpbusd %12, %12, %0\n\tvpdpbusd %12, %12, %1\n\tvpdpbusd %12, %12, %2\n\tvpdpbusd %12, %12, %3\n\t"
            "vpdpbusd %12, %12, %4\n\tvpdpbusd %12, %12, %5\n\tvpdpbusd %12, %12, %6\n\tvpdpbusd %12, %12, %7\n\t"
            "vpdpbusd %12, %12, %8\n\tvpdpbusd %12, %12, %9\n\tvpdpbusd %12, %12, %10\n\tvpdpbusd %12, %12, %11"
            : "+v"(s0), "+v"(s1), "+v"(s2), "+v"(s3), "+v"(s4), "+v"(s5), "+v"(s6), "+v"(s7), "+v"(s8), "+v"(s9),
              "+v"(s10), "+v"(s11)
            : "v"(x));
    return 12.0 * 64 * kPeakRounds;
}

// vpmaddwd with its vpaddd: 16 products each, six chains.
__attribute__((target("avx2"))) inline double avx2_products() {
    __m256i s0 = _mm256_setzero_si256(), s1 = s0, s2 = s0, s3 = s0, s4 = s0, s5 = s0, p0, p1;
    const __m256i x = _mm256_set1_epi16(1);
    for (int i = 0; i < kPeakRounds; ++i)
        __asm__ volatile("vpmaddwd %8, %8, %6\n\tvpaddd %6, %0, %0\n\tvpmaddwd %8, %8, %7\n\tvpaddd %7, %1, %1\n\t"
                         "vpmaddwd %8, %8, %6\n\tvpaddd %6, %2, %2\n\tvpmaddwd %8, %8, %7\n\tvpaddd %7, %3, %3\n\t"
                         "vpmaddwd %8, %8, %6\n\tvpaddd %6, %4, %4\n\tvpmaddwd %8, %8, %7\n\tvpaddd %7, %5, %5"
                         : "+x"(s0), "+x"(s1), "+x"(s2), "+x"(s3), "+x"(s4), "+x"(s5), "=&x"(p0), "=&x"(p1)
                         : "x"(x));
    return 6.0 * 16 * kPeakRounds;
}
#endif

// In GMAC/s, or 0 where nobody has written down how to measure it.
inline double peak_of(Isa level) {
#if defined(__x86_64__)
    double (*const run)() = level == Isa::vnni ? vnni_products : level == Isa::avx2 ? avx2_products : nullptr;
    if (run == nullptr) return 0;
    double best = 0;
    for (int i = 0; i < 100; ++i) {
        const double begin = seconds(), products = run();
        best = std::max(best, products / (seconds() - begin) * 1e-9);
    }
    return best;
#else
    static_cast<void>(level);
    return 0;
#endif
}

}  // namespace zeropoint::check
