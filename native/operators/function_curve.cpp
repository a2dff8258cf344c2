#include "operators/function_curve.h"

#include "kernels/simd/fused.h"
#include "kernels/registry.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace zeropoint {
namespace {

constexpr int kParts = FunctionCurve::kParts, kTerms = FunctionCurve::kTerms;

// gelu and silu are x but for a part that vanishes: on the left all of it, on the right what is below x.
struct Tail {
    FloatFunction function;
    float falls;  // below it, the function of -x only becomes smaller in size
    float line;   // from here on it is x, but for 2e-8 of gelu and 2e-6 of silu
};
constexpr Tail kTails[] = {
    {FloatFunction::gelu, -2, 6}, {FloatFunction::gelu_tanh, -2, 6}, {FloatFunction::silu, -2, 16}};

// The rounding of a product with inv, of up to 2^8 steps, and of the polynomial itself: four units in the last place,
// 2^-24 each, and as much again. Products that are rounded, too (nearly_fused), make it less than a unit more.
constexpr float kRounding = 1.0f / 8192;
// Results that are too near to the middle to be certain: at most so many, in steps, or polynomials are not worth it.
constexpr float kUncertain = 1.0f / 64;
// More than a byte has, and few enough for vector code to round them by adding a large number.
constexpr int32_t kMostSteps = 1 << 9;

std::vector<double> values_of(FloatFunction function, const std::vector<float>& x) {
    std::vector<float> y(x.size());
    kernels().float_function({function, x.data(), y.data()}, 0, static_cast<int64_t>(x.size()));
    return {y.begin(), y.end()};
}

// The part of x, as vector code finds it: one rounding, to an integer.
float place_of(const FunctionCurve& curve, float x) {
    return nearly_fused(std::fmin(x, curve.last), curve.rate, FunctionCurve::kMagic) - FunctionCurve::kMagic;
}

// As vector code computes it.
float curve_at(const FunctionCurve& curve, float x) {
    const float place = place_of(curve, x), r = nearly_fused(x, curve.rate, -place);
    const size_t part = static_cast<size_t>(static_cast<int>(place) & (kParts - 1));
    float y = curve.term[kTerms - 1][part];
    for (size_t k = kTerms - 1; k-- > 0;) y = nearly_fused(y, r, curve.term[k][part]);
    return y;
}

// Newton's polynomial through Chebyshev's places of a part, multiplied out, in r from its middle.
void fit(FunctionCurve& curve, FloatFunction function, float inv, int place) {
    const size_t part = static_cast<size_t>(place & (kParts - 1));
    const double width = 1.0 / static_cast<double>(curve.rate);
    double at[kTerms], d[kTerms], c[kTerms] = {};
    std::vector<float> x;
    for (int k = 0; k < kTerms; ++k) {
        at[k] = -0.5 * std::cos((2 * k + 1) * 3.14159265358979323846 / (2 * kTerms));
        x.push_back(static_cast<float>((place + at[k]) * width));
        at[k] = static_cast<double>(x.back()) / width - place;
    }
    const std::vector<double> y = values_of(function, x);
    for (size_t k = 0; k < kTerms; ++k) d[k] = y[k] * static_cast<double>(inv);
    for (int level = 1; level < kTerms; ++level)
        for (int k = kTerms - 1; k >= level; --k) d[k] = (d[k] - d[k - 1]) / (at[k] - at[k - level]);
    c[0] = d[kTerms - 1];
    for (int k = kTerms - 2; k >= 0; --k) {
        for (int j = kTerms - 1; j > 0; --j) c[j] = c[j - 1] - at[k] * c[j];
        c[0] = d[k] - at[k] * c[0];
    }
    for (size_t k = 0; k < kTerms; ++k) curve.term[k][part] = static_cast<float>(c[k]);
}

// The largest difference to the function, in steps. Between so many places that, a polynomial of the fourth degree or
// nearly so, does not double.
double largest_error(const FunctionCurve& curve, FloatFunction function, float inv) {
    constexpr int kPlaces = 64;
    const double width = 1.0 / static_cast<double>(curve.rate) / kPlaces;
    std::vector<float> x;
    for (double at = static_cast<double>(curve.low); at < static_cast<double>(curve.last) + width * kPlaces;
         at += width)
        x.push_back(static_cast<float>(at));
    for (int i = 0; i <= kPlaces; ++i)
        x.push_back(curve.last + (curve.high - curve.last) * static_cast<float>(i) / kPlaces);
    const std::vector<double> y = values_of(function, x);
    double error = 0;
    for (size_t i = 0; i < x.size(); ++i) {
        if (!(x[i] >= curve.low && x[i] <= curve.high)) continue;
        const double apart = std::fabs(static_cast<double>(curve_at(curve, x[i])) - y[i] * static_cast<double>(inv));
        if (!(apart <= error)) error = apart;  // NaN stays
    }
    return 2 * error;
}

}  // namespace

std::unique_ptr<const FunctionCurve> make_curve(FloatFunction function, float inv, int32_t most) {
    const auto tail =
        std::find_if(std::begin(kTails), std::end(kTails), [&](const Tail& t) { return t.function == function; });
    if (tail == std::end(kTails) || !(inv > 0) || !std::isfinite(inv) || most < 1 || most > kMostSteps) return nullptr;
    auto curve = std::make_unique<FunctionCurve>();
    // Below `low` nothing is rounded to a step, above `high` everything to more than `most`.
    constexpr double kNone = 0.45;
    const double steps = static_cast<double>(inv);
    float low = tail->falls;
    while (std::fabs(values_of(function, {low})[0]) * steps > kNone && low > -tail->line) low -= 0.125f;
    float high = (static_cast<float>(most) + 1) / inv;
    while (values_of(function, {high})[0] * steps < most + 1 && high < tail->line) high += 0.125f;
    if (std::fabs(values_of(function, {low})[0]) * steps > kNone || !std::isfinite(high) ||
        values_of(function, {high})[0] * steps < most + kNone)
        return nullptr;
    curve->low = low;
    curve->high = high;
    const float end = std::min(high, tail->line);
    curve->rate = static_cast<float>(kParts - 2) / (end - low);
    curve->last = end;  // so far: place_of takes nothing beyond it
    const int first = static_cast<int>(place_of(*curve, low)), last = first + kParts - 1;
    for (int place = first; place <= last; ++place) fit(*curve, function, inv, place);
    curve->last = static_cast<float>(last) / curve->rate;
    if (place_of(*curve, high) > static_cast<float>(last)) return nullptr;
    if (high > end) {  // the last part is a line
        const size_t part = static_cast<size_t>(last & (kParts - 1));
        for (size_t k = 0; k < kTerms; ++k) curve->term[k][part] = 0;
        curve->term[0][part] = curve->last * inv;
        curve->term[1][part] = inv / curve->rate;
    }
    const double uncertain = largest_error(*curve, function, inv) + static_cast<double>(kRounding);
    if (!(uncertain <= static_cast<double>(kUncertain))) return nullptr;
    curve->certain = 0.5f - static_cast<float>(uncertain);
    return curve;
}

}  // namespace zeropoint
