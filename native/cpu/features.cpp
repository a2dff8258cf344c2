#include "cpu/features.h"

#include "cpu/trial.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

#if defined(__linux__) && defined(__x86_64__)
#include <cerrno>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#if defined(__linux__) && defined(__aarch64__)
#include <sys/auxv.h>
#elif defined(__APPLE__) && defined(__aarch64__)
#include <sys/sysctl.h>
#endif

#include <cstdio>
#include <cstring>
#include <utility>

namespace zeropoint {
namespace {

std::string& note_of(CpuFeatures& f, FeatureSet one) { return f.notes[static_cast<size_t>(__builtin_ctz(one))]; }

// Offers a feature, or keeps the reason why not.
void decide(CpuFeatures& f, FeatureSet one, const std::string& why_not) {
    if (why_not.empty()) f.offered |= one;
    note_of(f, one) = why_not;
}

#if defined(__x86_64__)

struct CpuidWords {
    uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

CpuidWords cpuid(uint32_t leaf, uint32_t subleaf = 0) {
    CpuidWords r;
    __cpuid_count(leaf, subleaf, r.eax, r.ebx, r.ecx, r.edx);
    return r;
}

bool bit(uint32_t word, int index) { return ((word >> index) & 1u) != 0; }

uint64_t read_xcr0() {
    uint32_t lo = 0, hi = 0;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (static_cast<uint64_t>(hi) << 32) | lo;
}

std::string vendor_name() {
    const CpuidWords r = cpuid(0);
    char name[12];
    std::memcpy(name, &r.ebx, 4);
    std::memcpy(name + 4, &r.edx, 4);
    std::memcpy(name + 8, &r.ecx, 4);
    return std::string(name, 12);
}

std::string brand_name() {
    if (cpuid(0x80000000u).eax < 0x80000004u) return "";
    char text[48];
    for (uint32_t i = 0; i < 3; ++i) {
        const CpuidWords r = cpuid(0x80000002u + i);
        std::memcpy(text + 16 * i, &r, 16);
    }
    std::string name(text, strnlen(text, sizeof text));
    const size_t first = name.find_first_not_of(' ');
    const size_t last = name.find_last_not_of(' ');
    return first == std::string::npos ? "" : name.substr(first, last - first + 1);
}

#if defined(__linux__)

constexpr int kArchReqXcompPerm = 0x1023;
constexpr int kXfeatureXtiledata = 18;

// Palette 1 is architectural (8 tiles of 16 rows x 64 bytes): we state it rather than read CPUID leaf 0x1D, which some
// virtual machines mask to zero. All bytes not named are zero, as LDTILECFG requires.
struct alignas(64) TileConfig {
    uint8_t palette = 1;
    uint8_t start_row = 0;
    uint8_t reserved[14] = {};
    uint16_t column_bytes[16] = {};
    uint8_t rows[16] = {};
};

// C(16x16 int32) += A(16x64 u8) * B(64x16 s8) with A = 3 and B = -2 everywhere: every element must be 64 * 3 * -2.
__attribute__((target("amx-tile,amx-int8"), noinline)) bool amx_known_answer() {
    TileConfig config;
    for (int t = 0; t < 3; ++t) {
        config.column_bytes[t] = 64;
        config.rows[t] = 16;
    }
    alignas(64) static uint8_t a[16 * 64];
    alignas(64) static int8_t b[16 * 64];
    alignas(64) static int32_t c[16 * 16];
    std::memset(a, 3, sizeof a);
    std::memset(b, -2, sizeof b);
    std::memset(c, 0x55, sizeof c);
    // gcc's intrinsics do not say that they read memory: without this, what was written above may not be there yet.
    const auto fence = [&] { __asm__ volatile("" : : "r"(&config), "r"(a), "r"(b) : "memory"); };
    fence();
    _tile_loadconfig(&config);
    fence();
    _tile_zero(0);
    _tile_loadd(1, a, 64);
    _tile_loadd(2, b, 64);
    _tile_dpbusd(0, 1, 2);
    _tile_stored(0, c, 64);
    _tile_release();
    for (int32_t v : c)
        if (v != 64 * 3 * -2) return false;
    return true;
}

// Ask the kernel for the tile state, then try it. Returns "" when AMX works.
std::string try_amx() {
    if (syscall(SYS_arch_prctl, kArchReqXcompPerm, kXfeatureXtiledata) != 0)
        return std::string("the kernel refused permission for AMX tile state (arch_prctl ARCH_REQ_XCOMP_PERM: ") +
               std::strerror(errno) + ")";
    const std::string problem = tried_in_child(amx_known_answer);
    return problem.empty() ? "" : "AMX is announced, but " + problem + " when it was tried";
}

#else

std::string try_amx() { return "AMX needs Linux's permission call; this operating system has none"; }

#endif

void detect_x86(CpuFeatures& f) {
    f.vendor = vendor_name();
    f.brand = brand_name();
    const uint32_t max_leaf = cpuid(0).eax;
    const CpuidWords one = cpuid(1);
    const bool osxsave = bit(one.ecx, 27);
    const uint64_t xcr0 = osxsave ? read_xcr0() : 0;
    const bool ymm_enabled = (xcr0 & 0x6) == 0x6;
    const bool zmm_enabled = (xcr0 & 0xE6) == 0xE6;
    const bool tile_enabled = (xcr0 & 0x60000) == 0x60000;
    const CpuidWords seven = max_leaf >= 7 ? cpuid(7) : CpuidWords{};

    const bool has_avx2 = bit(one.ecx, 28) && bit(one.ecx, 12) && bit(one.ecx, 29) && bit(seven.ebx, 5);
    decide(f, feature::avx2,
           ymm_enabled && has_avx2
               ? ""
               : "CPUID does not announce AVX2, FMA and F16C, or the operating system has not enabled their registers");

    const bool has_avx512 = bit(seven.ebx, 16) && bit(seven.ebx, 30) && bit(seven.ebx, 17) && bit(seven.ebx, 31);
    decide(f, feature::avx512,
           !has_avx512
               ? "CPUID does not announce AVX512 F+BW+DQ+VL (an older or smaller CPU, or a virtual machine hides it)"
           : !zmm_enabled ? "the CPU has AVX512 but the operating system has not enabled its registers (XCR0)"
                          : f.why_not(feature::avx2));
    for (const auto& [wanted, announced] :
         {std::pair{feature::avx512_vnni, bit(seven.ecx, 11)}, std::pair{feature::avx512_vbmi, bit(seven.ecx, 1)}})
        decide(f, wanted,
               !f.has(feature::avx512) ? "needs AVX512, which is not usable: " + f.why_not(feature::avx512)
               : !announced            ? std::string("CPUID does not announce ") +
                                             (wanted == feature::avx512_vnni ? "AVX512_VNNI" : "AVX512_VBMI")
                                       : "");

    const bool has_avx_vnni = max_leaf >= 7 && seven.eax >= 1 && bit(cpuid(7, 1).eax, 4);
    decide(f, feature::avx_vnni, !has_avx_vnni ? "CPUID does not announce AVX-VNNI" : f.why_not(feature::avx2));

    const bool has_amx = bit(seven.edx, 24) && bit(seven.edx, 25);
    decide(f, feature::amx_int8,
           !has_amx ? "CPUID does not announce AMX-TILE and AMX-INT8"
           : !f.has(feature::avx512_vnni)
               ? "AMX is announced but AVX512_VNNI, which our AMX kernels also use, is not usable: " +
                     f.why_not(feature::avx512_vnni)
           : !tile_enabled ? "the CPU has AMX but the operating system has not enabled its tile registers (XCR0)"
                           : try_amx());
    const bool palette_masked = max_leaf < 0x1D || cpuid(0x1D).eax == 0;
    if (f.has(feature::amx_int8) && palette_masked)
        note_of(f, feature::amx_int8) =
            "CPUID leaf 0x1D is masked by this virtual machine; zeropoint uses the architectural palette 1 and its "
            "self-test passed. oneDNN (inside torch and OpenVINO) reads that leaf and dies with SIGILL here: set "
            "ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16 for them";
}

#elif defined(__aarch64__)

#if defined(__linux__)

// What Linux says of the CPU (arch/arm64/include/uapi/asm/hwcap.h), for systems whose headers do not know it yet.
constexpr unsigned long kHwcapCpuid = 1ul << 11, kHwcapDotprod = 1ul << 20, kHwcap2I8mm = 1ul << 13;

void detect_arm(CpuFeatures& f) {
    const unsigned long hwcap = getauxval(AT_HWCAP), hwcap2 = getauxval(AT_HWCAP2);
    if ((hwcap & kHwcapCpuid) != 0) {
        uint64_t midr = 0;
        __asm__("mrs %0, midr_el1" : "=r"(midr));
        char text[64];
        std::snprintf(text, sizeof text, "ARM implementer 0x%02x", static_cast<unsigned>(midr >> 24 & 0xFFu));
        f.vendor = text;
        std::snprintf(text, sizeof text, "%s, part 0x%03x", f.vendor.c_str(),
                      static_cast<unsigned>(midr >> 4 & 0xFFFu));
        f.brand = text;
    }
    decide(f, feature::dotprod,
           (hwcap & kHwcapDotprod) != 0 ? "" : "the operating system does not announce dot products (HWCAP_ASIMDDP)");
    decide(f, feature::i8mm,
           !f.has(feature::dotprod) ? "needs dot products, which are not there"
           : (hwcap2 & kHwcap2I8mm) == 0
               ? "the operating system does not announce matrix products of bytes (HWCAP2_I8MM)"
               : "");
}

#elif defined(__APPLE__)

void detect_arm(CpuFeatures& f) {
    char brand[128] = "";
    size_t size = sizeof brand;
    f.vendor = "Apple";
    if (sysctlbyname("machdep.cpu.brand_string", brand, &size, nullptr, 0) == 0) f.brand = brand;
    const auto announced = [](const char* name) {
        int32_t value = 0;
        size_t bytes = sizeof value;
        return sysctlbyname(name, &value, &bytes, nullptr, 0) == 0 && value != 0;
    };
    decide(f, feature::dotprod,
           announced("hw.optional.arm.FEAT_DotProd")
               ? ""
               : "the operating system does not announce dot products (hw.optional.arm.FEAT_DotProd)");
    decide(f, feature::i8mm,
           !f.has(feature::dotprod) ? "needs dot products, which are not there"
           : !announced("hw.optional.arm.FEAT_I8MM")
               ? "the operating system does not announce matrix products of bytes (hw.optional.arm.FEAT_I8MM)"
               : "");
}

#else

void detect_arm(CpuFeatures& f) {
    for (const FeatureSet wanted : {feature::dotprod, feature::i8mm})
        decide(f, wanted, "only Linux and macOS are asked what an ARM CPU can do");
}

#endif

#endif

CpuFeatures detect() {
    CpuFeatures f;
#if defined(__x86_64__)
    f.architecture = "x86_64";
    detect_x86(f);
#elif defined(__aarch64__)
    f.architecture = "aarch64";
    f.brand = "64-bit ARM";
    decide(f, feature::neon, "");
    detect_arm(f);
#elif defined(__wasm__)
    f.architecture = "wasm32";
    f.brand = "WebAssembly";
    decide(f, feature::simd128, "");
#else
    f.architecture = "other";
#endif
    for (const NamedFeature& known : feature_list())
        if (f.architecture != known.architecture)
            decide(f, known.bit, std::string("this is not an ") + known.architecture + " CPU");
    return f;
}

}  // namespace

const std::vector<NamedFeature>& feature_list() {
    static const std::vector<NamedFeature> list = {
#define FEATURE(name, bit, architecture) {#name, feature::name, #architecture},
#include "cpu/features.inc"
#undef FEATURE
    };
    return list;
}

std::string CpuFeatures::why_not(FeatureSet features) const {
    for (const NamedFeature& known : feature_list())
        if ((features & known.bit) != 0 && !has(known.bit)) return notes[static_cast<size_t>(__builtin_ctz(known.bit))];
    return "";
}

const CpuFeatures& cpu_features() {
    static const CpuFeatures features = detect();
    return features;
}

}  // namespace zeropoint
