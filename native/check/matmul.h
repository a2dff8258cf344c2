// gemm kernels against sums in int64 over plain weights, through the operators that pack the weights: every listed
// kernel this machine can run, the amx kernel over emulated tiles, and the avx_vnni kernel in AVX512's encoding.
#pragma once

#include "check/inputs.h"
#include "check/kernels.h"
#include "check/report.h"
#include "check/tiles.h"
#include "cpu/threads.h"
#include "operators/affine.h"
#include "operators/float_stage.h"
#include "operators/float_functions.h"
#include "operators/linear.h"

#include <atomic>
#include <cstring>
#include <thread>

namespace zeropoint {
const GemmKernel& gemm_avx_vnni_in_evex();  // of kernels/gemm/avx_vnni.cpp, see native/CMakeLists.txt
}  // namespace zeropoint

namespace zeropoint::check {

// The values of a tensor of bytes: any, or those that break saturating or narrow arithmetic.
enum class Values { any, largest, smallest, alternating };

inline std::vector<uint8_t> values(Random& random, int64_t n, IntType type, Values kind) {
    std::vector<uint8_t> r(static_cast<size_t>(n));
    const uint8_t most = type == IntType::u8 ? 255 : 127, least = type == IntType::u8 ? 0 : 128;
    for (size_t i = 0; i < r.size(); ++i) switch (kind) {
            case Values::any: r[i] = static_cast<uint8_t>(random.bits()); break;
            case Values::largest: r[i] = most; break;
            case Values::smallest: r[i] = least; break;
            case Values::alternating: r[i] = i % 3 == 0 ? least : most; break;
        }
    return r;
}

inline int64_t value_of(uint8_t bits, IntType type) { return type == IntType::s8 ? static_cast<int8_t>(bits) : bits; }

// Inputs, weights and an epilogue for `n` output channels with sums over `depth` products.
struct MatmulCase {
    IntType x_type = IntType::u8, w_type = IntType::s8;
    int32_t x_zero_point = 0;
    std::vector<int32_t> w_zero_point;
    std::vector<uint8_t> x, w, z;
    std::vector<int32_t> bias;
    std::vector<float> multiplier, float_bias, after;
    std::vector<uint8_t> table;
    MatmulOutput out;
    std::string name;

    WeightTensor weights() const {
        return {w.data(), w_type, w_zero_point.data(), static_cast<int64_t>(w_zero_point.size())};
    }
    MatmulInput input() const { return {x.data(), x_type, x_zero_point}; }
    int64_t w_zero(int64_t n) const {
        return w_zero_point.empty() ? 0 : w_zero_point[w_zero_point.size() == 1 ? 0 : static_cast<size_t>(n)];
    }
    size_t element() const { return out.type == OutputType::f32 ? 4 : 1; }
};

enum class Finish { plain, relu, bounds, leaky, table, residual, residual_relu, f32, f32_relu, f32_leaky, all };
constexpr int kFinishes = 11;

inline int32_t zero_point_of(Random& random, IntType type) {
    const int32_t low = type == IntType::u8 ? 0 : -128, high = type == IntType::u8 ? 255 : 127;
    switch (random.below(4)) {
        case 0: return low;
        case 1: return high;
        default: return static_cast<int32_t>(random.between(low, high));
    }
}

inline MatmulCase matmul_case(Random& random, int64_t inputs, int64_t weights, int64_t outputs, int64_t n,
                              int64_t depth, Finish finish, Values kind = Values::any, Values w_kind = Values::any) {
    constexpr IntType kTypes[] = {IntType::u8, IntType::s8};
    MatmulCase c;
    c.x_type = random.of(kTypes);
    c.w_type = random.below(4) == 0 ? IntType::u8 : IntType::s8;
    c.x_zero_point = zero_point_of(random, c.x_type);
    const int64_t zero_points =
        c.w_type == IntType::u8 ? random.of({int64_t{1}, n}) : random.of({int64_t{0}, n, int64_t{0}});
    for (int64_t i = 0; i < zero_points; ++i) c.w_zero_point.push_back(zero_point_of(random, c.w_type));
    c.x = values(random, inputs, c.x_type, kind);
    c.w = values(random, weights, c.w_type, w_kind);
    MatmulOutput& o = c.out;
    // A few thousand steps of the sums to one of the output; powers of two make ties.
    const double spread = 1.0 / (40.0 * std::sqrt(static_cast<double>(depth) + 1.0));
    const bool per_channel = random.below(2) != 0;
    for (int64_t i = 0; i < (per_channel && n > 0 ? n : 1); ++i)
        c.multiplier.push_back(random.below(3) == 0 ? std::ldexp(1.0f, -static_cast<int>(random.between(1, 8)))
                                                    : static_cast<float>(random.unit() * spread + 1e-9));
    if (random.below(4) != 0)
        for (int64_t i = 0; i < n; ++i) c.bias.push_back(static_cast<int32_t>(random.between(-20000, 20000)));
    const bool is_signed = random.below(2) != 0;
    const IntType type = is_signed ? IntType::s8 : IntType::u8;
    o.type = is_signed ? OutputType::s8 : OutputType::u8;
    o.lo = is_signed ? -128 : 0;
    o.hi = is_signed ? 127 : 255;
    o.zero_point = zero_point_of(random, type);
    const auto add_residual = [&] {
        o.z_type = random.of(kTypes);
        o.z_zero_point = zero_point_of(random, o.z_type);
        o.z_multiplier = static_cast<float>(random.unit() * 2);
        c.z = values(random, outputs, o.z_type, Values::any);
    };
    const auto add_table = [&] {
        for (int i = 0; i < 256; ++i) c.table.push_back(static_cast<uint8_t>(random.bits()));
    };
    const auto add_slope = [&] { o.slope = random.of({0.01f, 0.5f, 1.5f}); };
    switch (finish) {
        case Finish::plain: break;
        case Finish::relu: o.lo = o.zero_point; break;
        case Finish::bounds:
            o.lo = o.zero_point;
            o.hi = std::min(o.hi, o.lo + 30);
            break;
        case Finish::leaky: add_slope(); break;
        case Finish::table: add_table(); break;
        case Finish::residual: add_residual(); break;
        case Finish::residual_relu:
            add_residual();
            o.lo = o.zero_point;
            break;
        case Finish::all:
            add_residual();
            add_table();
            add_slope();
            break;
        default:
            o.type = OutputType::f32;
            if (finish == Finish::f32_relu) o.low = 0;
            if (finish == Finish::f32_leaky) add_slope();
            break;
    }
    if (random.below(3) != 0)
        for (int64_t i = 0; i < n; ++i)
            c.float_bias.push_back(static_cast<float>(random.unit() - 0.5) * (o.type == OutputType::f32 ? 1 : 40));
    if (o.type != OutputType::f32 && random.below(4) == 0) {
        for (int64_t i = 0; i < n; ++i) c.after.push_back(static_cast<float>(0.5 + random.unit()));
        c.after.resize(c.after.size() + kPanel);
        o.first = random.of({1.0f, 0.75f, 1.1f});
        o.zero_point_first = random.below(2) != 0;
    }
    o.after = c.after.empty() ? nullptr : c.after.data();
    o.bias = c.bias.empty() ? nullptr : c.bias.data();
    o.multiplier = c.multiplier.data();
    o.multipliers = static_cast<int64_t>(c.multiplier.size());
    o.float_bias = c.float_bias.empty() ? nullptr : c.float_bias.data();
    o.z = c.z.empty() ? nullptr : c.z.data();
    o.table = c.table.empty() ? nullptr : c.table.data();
    c.name =
        std::string(name(c.x_type)) + " x " + name(c.w_type) + ", finish " + std::to_string(static_cast<int>(finish));
    return c;
}

// y[at] from the exact sum, written once more and independently of the kernels' reference: in float64 where that
// changes nothing.
inline void finish_plainly(const MatmulCase& c, int64_t sum, int64_t n, int64_t at, uint8_t* y) {
    const MatmulOutput& o = c.out;
    const auto rounded = [](double v) { return static_cast<float>(v); };
    const int64_t biased = sum + (o.bias != nullptr ? o.bias[n] : 0);
    // The product of two float32 is exact in float64, and so is a sum of float32 but for its last rounding.
    float v = static_cast<float>(static_cast<int32_t>(biased));
    if (o.after != nullptr) v = rounded(double{v} * o.first);
    v = rounded(double{v} * o.multiplier[o.multipliers == 1 ? 0 : n]);
    if (o.float_bias != nullptr) v = rounded(double{v} + o.float_bias[n]);
    if (o.after != nullptr) v = rounded(double{v} * o.after[n]);
    if (o.z != nullptr) {
        const int64_t z = value_of(c.z[static_cast<size_t>(at)], o.z_type) - o.z_zero_point;
        v = rounded(double{v} + rounded(static_cast<double>(z) * o.z_multiplier));
    }
    if (o.leaky() && v < 0) v = rounded(double{v} * o.slope);
    if (o.type == OutputType::f32) {
        v = std::min(std::max(v, o.low), o.high);
        std::memcpy(y + at * 4, &v, sizeof v);
        return;
    }
    const double q = o.zero_point_first ? std::nearbyint(double{rounded(double{v} + o.zero_point)})
                                        : std::nearbyint(double{v}) + o.zero_point;
    const int64_t clamped = static_cast<int64_t>(std::min<double>(std::max<double>(q, o.lo), o.hi));
    const uint8_t bits = static_cast<uint8_t>(clamped);
    y[at] = o.table != nullptr ? o.table[bits] : bits;
}

inline std::vector<uint8_t> plain_linear(const MatmulCase& c, int64_t rows, int64_t n, int64_t k) {
    std::vector<uint8_t> y(static_cast<size_t>(rows * n) * c.element());
    for (int64_t m = 0; m < rows; ++m)
        for (int64_t i = 0; i < n; ++i) {
            int64_t sum = 0;
            for (int64_t j = 0; j < k; ++j)
                sum += (value_of(c.x[static_cast<size_t>(m * k + j)], c.x_type) - c.x_zero_point) *
                       (value_of(c.w[static_cast<size_t>(i * k + j)], c.w_type) - c.w_zero(i));
            finish_plainly(c, sum, i, m * n + i, y.data());
        }
    return y;
}

struct GemmCandidate {
    const GemmKernel& kernel;
    Check check;
};

inline std::vector<GemmCandidate> gemm_candidates(Report* report, const char* subject) {
    std::vector<GemmCandidate> r;
    for (const Listed& k : listed()) {
        if (k.operation != "gemm") continue;
        const std::string missing = why_not(k.isa);
        if (missing.empty())
            r.push_back({k.kernels.gemm(), Check(subject, isa_name(k.isa))});
        else if (report != nullptr)
            report->skip(subject, isa_name(k.isa), missing);
    }
    r.push_back({gemm_amx_emulated(), Check(subject, "emulated amx tiles")});
    if constexpr (kX86)
        if (why_not(Isa::vnni).empty())
            r.push_back({gemm_avx_vnni_in_evex(), Check(subject, "AVX512's form of avx_vnni")});
    return r;
}

// Compares what run(out) writes with `want`. Floats compare by their bits, but for the sign of zero.
template <class Run>
void expect_bytes(Check& check, const MatmulCase& c, const std::vector<uint8_t>& want, const std::string& what,
                  const Run& run) {
    constexpr uint8_t kGuard = 0xA5;
    constexpr size_t kRoom = 64;
    std::vector<uint8_t> got(want.size() + 2 * kRoom, kGuard);
    MatmulOutput out = c.out;
    out.y = got.data() + kRoom;
    run(out);
    size_t at = 0;
    const auto equal = [&](size_t i) {
        if (got[kRoom + i] == want[i]) return true;
        if (c.out.type != OutputType::f32) return false;
        float a, b;
        std::memcpy(&a, want.data() + i / 4 * 4, 4);
        std::memcpy(&b, got.data() + kRoom + i / 4 * 4, 4);
        return a == 0 && b == 0;
    };
    while (at < want.size() && equal(at)) ++at;
    bool inside = true;
    for (size_t i = 0; i < kRoom; ++i) inside = inside && got[i] == kGuard && got[kRoom + want.size() + i] == kGuard;
    check.expect(at == want.size() && inside, [&] {
        if (!inside) return what + ", " + c.name + ": wrote outside its output";
        return what + ", " + c.name + ": byte " + std::to_string(at) + " must be " + std::to_string(want[at]) +
               ", is " + std::to_string(got[kRoom + at]);
    });
}

inline void check_gemm(Report& report, bool quick) {
    const int before = num_threads();
    std::vector<GemmCandidate> candidates = gemm_candidates(&report, "gemm");
    Random random(31);
    int count = 0;
    const auto one = [&](int64_t rows, int64_t n, int64_t k, Finish finish, Values kind = Values::any,
                         Values w_kind = Values::any) {
        const MatmulCase c = matmul_case(random, rows * k, n * k, rows * n, n, k, finish, kind, w_kind);
        const std::vector<uint8_t> want = plain_linear(c, rows, n, k);
        set_num_threads(1 + count++ % 3);
        for (GemmCandidate& candidate : candidates)
            expect_bytes(candidate.check, c, want,
                         "linear " + std::to_string(rows) + "x" + std::to_string(n) + "x" + std::to_string(k),
                         [&](const MatmulOutput& out) {
                             const LinearPlan plan(c.weights(), n, k, candidate.kernel);
                             plan.run(c.input(), rows, out);
                         });
    };
    const auto any_finish = [&] { return static_cast<Finish>(random.below(kFinishes)); };
    const int64_t step = quick ? 3 : 1;
    for (int64_t rows = 0; rows <= 70; rows += step) one(rows, 33, 21, any_finish());
    for (int64_t n = 0; n <= 70; n += step) one(7, n, 13, any_finish());
    for (int64_t n = 1; n <= 70; n += 3 * step) one(37, n, 5, any_finish());
    for (int64_t k = 0; k <= 140; k += step) one(14, 18, k, any_finish());
    for (int64_t k = 1; k <= 70; k += 2 * step) one(random.between(1, 6), 47, k, any_finish());
    for (int finish = 0; finish < kFinishes; ++finish)
        for (int64_t n : {16, 35})
            for (int64_t rows : {3, 19}) one(rows, n, 24, static_cast<Finish>(finish));
    // 255 x 127, 255 x -128, -128 x -128 and the like, which saturating or narrow arithmetic gets wrong.
    constexpr Values kExtremeValues[] = {Values::largest, Values::smallest, Values::alternating};
    for (Values kind : kExtremeValues)
        for (Values w_kind : kExtremeValues)
            for (int64_t rows : {1, 2, 19})
                for (int i = 0; i < (quick ? 1 : 6); ++i) one(rows, 17, 260, any_finish(), kind, w_kind);
    // Few rows take many panels at once.
    for (int64_t rows = 1; rows <= 5; ++rows)
        for (int64_t n : {128, 213, 300}) one(rows, n, random.between(1, 40), any_finish());
    // Groups of panels, whole and in part, over every height of a tile.
    for (int64_t rows = 1; rows <= 30; rows += step)
        for (int64_t n : {64, 80, 96, 112, 128, 61, 93}) one(rows, n, random.between(1, 24), any_finish());
    for (int finish = 0; finish < kFinishes; ++finish)
        for (int64_t n : {64, 107}) one(13, n, 20, static_cast<Finish>(finish));
    // Few channels, whose weights may stay in registers.
    for (int64_t k : {13, 16, 24, 32, 40})
        for (int64_t n : {16, 48, 96, 107}) one(random.between(1, 40), n, k, any_finish());
    // Several blocks of the depth, strips of rows, and chunks for the threads.
    one(15, 17, 513, Finish::plain);
    if (!quick) {
        for (int64_t k : {511, 512, 514, 1025, 1536, 2050}) one(31, 20, k, any_finish());
        for (int64_t rows : {239, 240, 241, 500}) one(rows, 40, 30, any_finish());
        one(64, 200, 300, any_finish());
        one(300, 33, 1100, any_finish());
    }
    for (int64_t k : {int64_t{4096}, int64_t{quick ? 5000 : 65536}})
        for (int64_t rows : {2, 13}) {
            if (quick && rows > 2) continue;
            one(rows, 5, k, Finish::f32);
            one(rows, 5, k, Finish::plain, Values::smallest, Values::smallest);
            one(rows, 5, k, Finish::f32, Values::largest, Values::smallest);
        }
    set_num_threads(before);
    for (const GemmCandidate& c : candidates) report.add(c.check);
}

// A function in the epilogue gives the bytes of three steps: linear to float32, the function, quantize.
inline void check_float_stage(Report& report, bool quick) {
    const int before = num_threads();
    std::vector<GemmCandidate> candidates = gemm_candidates(nullptr, "gemm and a function");
    Random random(34);
    constexpr FloatFunction kFunctions[] = {FloatFunction::gelu, FloatFunction::gelu_tanh, FloatFunction::tanh,
                                            FloatFunction::sigmoid, FloatFunction::silu};
    constexpr int64_t kShapes[][3] = {{1, 1, 1}, {1, 70, 9}, {5, 64, 16}, {12, 33, 7}, {13, 128, 20}, {40, 100, 31}};
    int count = 0;
    for (const auto& [rows, n, k] : kShapes)
        for (const FloatFunction function : kFunctions) {
            if (quick && count % 2 == 1 && rows > 5) continue;
            MatmulCase c =
                matmul_case(random, rows * k, n * k, rows * n, n, k, count % 3 == 0 ? Finish::f32_relu : Finish::f32);
            FloatStage stage;
            stage.function = function;
            stage.scale = 0.003 + 0.02 * random.unit();
            const bool is_signed = random.below(2) != 0;
            const IntType type = is_signed ? IntType::s8 : IntType::u8;
            const int32_t low = is_signed ? -128 : 0, high = is_signed ? 127 : 255;
            const int32_t zero_point = zero_point_of(random, type);
            if (count % 4 != 0) stage.prepare(high - zero_point);
            set_num_threads(1 + count++ % 3);
            const size_t elements = static_cast<size_t>(rows * n);
            for (GemmCandidate& candidate : candidates) {
                const LinearPlan plan(c.weights(), n, k, candidate.kernel);
                std::vector<float> floats(elements);
                std::vector<uint8_t> want(elements);
                MatmulOutput out = c.out;
                out.y = floats.data();
                plan.run(c.input(), rows, out);
                float_function(function, floats.data(), floats.data(), rows * n);
                quantize_tensor(floats.data(), want.data(), type, rows * n, stage.scale, zero_point,
                                RoundingVariant::split, low, high);
                std::vector<float> made(elements);
                MatmulOutput through = c.out;
                through.y = made.data();
                through.function = &stage;
                plan.run(c.input(), rows, through);
                candidate.check.expect(std::memcmp(made.data(), floats.data(), elements * sizeof(float)) == 0,
                                       "float32 through a function are not those of two steps");
                MatmulCase bytes = c;
                bytes.out.type = is_signed ? OutputType::s8 : OutputType::u8;
                bytes.out.zero_point = zero_point;
                bytes.out.lo = low;
                bytes.out.hi = high;
                bytes.out.function = &stage;
                expect_bytes(candidate.check, bytes, want,
                             "function " + std::to_string(static_cast<int>(function)) + ", " + std::to_string(rows) +
                                 "x" + std::to_string(n) + "x" + std::to_string(k),
                             [&, rows = rows](const MatmulOutput& y) { plan.run(c.input(), rows, y); });
            }
        }
    set_num_threads(before);
    for (const GemmCandidate& c : candidates) report.add(c.check);
}

// One plan, many callers at once.
inline void check_gemm_callers(Report& report, bool quick) {
    Check check("gemm", "one plan, many callers");
    const int before = num_threads();
    Random random(32);
    const int64_t n = 50, k = 200;
    for (GemmCandidate& candidate : gemm_candidates(nullptr, "gemm")) {
        if (quick && &candidate.kernel == &gemm_amx_emulated()) continue;
        const MatmulCase c = matmul_case(random, 100 * k, n * k, 100 * n, n, k, Finish::relu);
        const LinearPlan plan(c.weights(), n, k, candidate.kernel);
        const std::vector<uint8_t> want = plain_linear(c, 100, n, k);
        set_num_threads(2);
        std::atomic<int> wrong{0};
        std::vector<std::thread> callers;
        for (int64_t caller = 0; caller < 4; ++caller)
            callers.emplace_back([&, caller] {
                for (int64_t i = 0; i < (quick ? 2 : 20); ++i) {
                    const int64_t rows = 1 + (caller * 31 + i * 17) % 100;
                    std::vector<uint8_t> y(static_cast<size_t>(rows * n));
                    MatmulOutput out = c.out;
                    out.y = y.data();
                    plan.run(c.input(), rows, out);
                    if (!std::equal(y.begin(), y.end(), want.begin())) ++wrong;
                }
            });
        for (std::thread& t : callers) t.join();
        check.expect(wrong == 0, "a caller got another result");
    }
    set_num_threads(before);
    report.add(check);
}

}  // namespace zeropoint::check
