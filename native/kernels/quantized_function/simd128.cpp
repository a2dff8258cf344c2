// With a curve, the function itself is computed only where polynomials are not certain of the byte: its fused
// multiply-adds are many doubles here.
#include "kernels/simd/simd128.h"
#include "kernels/quantized_function/template.h"

namespace zeropoint {
namespace {

template <FloatFunction kFunction, class T>
class CurveBlocks {
public:
    static constexpr int64_t kBlock = 16;

    explicit CurveBlocks(const QuantizedFunctionArgs& a) : args_(a) {
        for (int part = 0; part < FunctionCurve::kParts; ++part)
            for (int k = 0; k < FunctionCurve::kTerms; ++k) terms_[part][k] = a.curve->term[k][part];
    }

    void operator()(const float* x, T* y) const {
        const v128_t zero_point = wasm_i32x4_splat(args_.zero_point);
        v128_t q[4], sure = wasm_i32x4_const_splat(-1);
        for (int i = 0; i < 4; ++i) {
            const v128_t steps = value(wasm_v128_load(x + 4 * i)), whole = wasm_f32x4_nearest(steps);
            const v128_t away = wasm_f32x4_abs(wasm_f32x4_sub(steps, whole));
            sure = wasm_v128_and(sure, wasm_f32x4_le(away, wasm_f32x4_splat(args_.curve->certain)));
            q[i] = wasm_i32x4_add(wasm_i32x4_trunc_sat_f32x4(whole), zero_point);
        }
        if (__builtin_expect(!wasm_i32x4_all_true(sure), 0)) return decide(args_, x, y);
        const v128_t lo = wasm_i16x8_splat(static_cast<int16_t>(args_.lo)),
                     hi = wasm_i16x8_splat(static_cast<int16_t>(args_.hi));
        const auto clamped = [&](v128_t a, v128_t b) {
            return wasm_i16x8_min(wasm_i16x8_max(wasm_i16x8_narrow_i32x4(a, b), lo), hi);
        };
        wasm_v128_store(y, Simd128::saturated(y, clamped(q[0], q[1]), clamped(q[2], q[3])));
    }

private:
    // Four values, each with the four terms of its part.
    v128_t value(v128_t x) const {
        const v128_t magic = wasm_f32x4_const_splat(FunctionCurve::kMagic), rate = wasm_f32x4_splat(args_.curve->rate);
        const v128_t place =
            wasm_f32x4_add(wasm_f32x4_mul(wasm_f32x4_pmin(x, wasm_f32x4_splat(args_.curve->last)), rate), magic);
        const v128_t r = wasm_f32x4_sub(wasm_f32x4_mul(x, rate), wasm_f32x4_sub(place, magic));
        const v128_t part = wasm_v128_and(place, wasm_i32x4_const_splat(FunctionCurve::kParts - 1));
        const v128_t a = wasm_v128_load(terms_[wasm_i32x4_extract_lane(part, 0)]),
                     b = wasm_v128_load(terms_[wasm_i32x4_extract_lane(part, 1)]),
                     c = wasm_v128_load(terms_[wasm_i32x4_extract_lane(part, 2)]),
                     d = wasm_v128_load(terms_[wasm_i32x4_extract_lane(part, 3)]);
        const v128_t ab = wasm_i32x4_shuffle(a, b, 0, 4, 1, 5), cd = wasm_i32x4_shuffle(c, d, 0, 4, 1, 5);
        const v128_t ab_high = wasm_i32x4_shuffle(a, b, 2, 6, 3, 7), cd_high = wasm_i32x4_shuffle(c, d, 2, 6, 3, 7);
        v128_t v = wasm_i64x2_shuffle(ab_high, cd_high, 1, 3);
        v = wasm_f32x4_add(wasm_f32x4_mul(v, r), wasm_i64x2_shuffle(ab_high, cd_high, 0, 2));
        v = wasm_f32x4_add(wasm_f32x4_mul(v, r), wasm_i64x2_shuffle(ab, cd, 1, 3));
        return wasm_f32x4_add(wasm_f32x4_mul(v, r), wasm_i64x2_shuffle(ab, cd, 0, 2));
    }
    // Sixteen values; the vectors of the function end in the middle of a block.
    static __attribute__((noinline)) void decide(const QuantizedFunctionArgs& a, const float* x, T* y) {
        const ExactBlocks<Simd128, kFunction, T> exact(a);
        float values[exact.kBlock] = {};
        T bytes[exact.kBlock];
        std::memcpy(values, x, kBlock * sizeof *x);
        exact(values, bytes);
        std::memcpy(y, bytes, kBlock);
    }

    const QuantizedFunctionArgs& args_;
    alignas(16) float terms_[FunctionCurve::kParts][FunctionCurve::kTerms];
};

template <FloatFunction kFunction, class T>
struct Visit {
    static void run(const QuantizedFunctionArgs& a, int64_t begin, int64_t end) {
        if (a.curve != nullptr) return each_block<T>(a, begin, end, CurveBlocks<kFunction, T>(a));
        each_block<T>(a, begin, end, ExactBlocks<Simd128, kFunction, T>(a));
    }
};

}  // namespace

void quantized_function_simd128(const QuantizedFunctionArgs& a, int64_t begin, int64_t end) {
    each_type<Visit>(a, begin, end);
}

}  // namespace zeropoint
