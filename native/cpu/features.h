// What this CPU can do, as far as the operating system lets us use it.
#pragma once

#include <cstdint>
#include <string>

namespace zeropoint {

// Instruction-set flags. A flag is set only if the CPU has the feature AND the operating system saves the registers it
// needs (XCR0) AND, for AMX, a known-answer tile multiply came out right.
struct CpuFeatures {
    bool avx2 = false;         // AVX2 + FMA + F16C, with YMM state enabled
    bool avx512 = false;       // AVX512 F + BW + DQ + VL, with ZMM state enabled
    bool avx512_vnni = false;  // avx512 + AVX512_VNNI
    bool avx512_vbmi = false;  // avx512 + AVX512_VBMI
    bool amx_int8 = false;     // avx512_vnni + AMX-TILE + AMX-INT8, permitted by the OS and verified by execution
    bool neon = false;         // 64-bit ARM, which always has it
    bool dotprod = false;      // neon + SDOT and UDOT (ARMv8.2)
    bool i8mm = false;         // dotprod + USDOT and USMMLA (ARMv8.6)

    std::string architecture;  // "x86_64", "aarch64" or "other"
    std::string vendor;        // "GenuineIntel", "AuthenticAMD", "ARM implementer 0x41", ...
    std::string brand;         // the marketing name, trimmed
    std::string avx512_note;   // why avx512 is off, empty if it is on
    std::string vnni_note;     // why avx512_vnni is off, empty if it is on
    std::string amx_note;      // why amx_int8 is off, or what is unusual about it; empty if plainly on
    std::string dotprod_note;  // why dotprod is off, empty if it is on
    std::string i8mm_note;     // why i8mm is off, empty if it is on
};

// Detected once, on first use; thread-safe.
const CpuFeatures& cpu_features();

}  // namespace zeropoint
