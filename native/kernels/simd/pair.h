// Two vectors as one, for long chains of arithmetic on float32: while one half waits for a result, the other has work.
#pragma once

namespace zeropoint {
namespace {

template <class V>
struct Pair {
    static constexpr int W = 2 * V::W;
    struct F {
        typename V::F low, high;
    };
    struct I {
        typename V::I low, high;
    };
    struct M {
        typename V::M low, high;
    };

    static F set(float x) { return {V::set(x), V::set(x)}; }
    static F load(const float* p) { return {V::load(p), V::load(p + V::W)}; }
    static void store(float* p, F a) {
        V::store(p, a.low);
        V::store(p + V::W, a.high);
    }
    static F add(F a, F b) { return {V::add(a.low, b.low), V::add(a.high, b.high)}; }
    static F sub(F a, F b) { return {V::sub(a.low, b.low), V::sub(a.high, b.high)}; }
    static F mul(F a, F b) { return {V::mul(a.low, b.low), V::mul(a.high, b.high)}; }
    static F div(F a, F b) { return {V::div(a.low, b.low), V::div(a.high, b.high)}; }
    static F fma(F a, F b, F c) { return {V::fma(a.low, b.low, c.low), V::fma(a.high, b.high, c.high)}; }
    static F round(F a) { return {V::round(a.low), V::round(a.high)}; }
    static F min(F a, F b) { return {V::min(a.low, b.low), V::min(a.high, b.high)}; }
    static F max(F a, F b) { return {V::max(a.low, b.low), V::max(a.high, b.high)}; }
    static F clamp(F a, F lo, F hi) { return {V::clamp(a.low, lo.low, hi.low), V::clamp(a.high, lo.high, hi.high)}; }
    static M less(F a, F b) { return {V::less(a.low, b.low), V::less(a.high, b.high)}; }
    static F select(M m, F yes, F no) {
        return {V::select(m.low, yes.low, no.low), V::select(m.high, yes.high, no.high)};
    }
    static I to_int(F a) { return {V::to_int(a.low), V::to_int(a.high)}; }
    static F power_of_two(I n) { return {V::power_of_two(n.low), V::power_of_two(n.high)}; }
};

}  // namespace
}  // namespace zeropoint
