// A function of float32 as 32 quartics over equal parts of [begin, end), for results that are rounded to bytes anyway.
// It comes with a bound of its error: where a result is further than that from the middle between two bytes, it rounds
// as the function itself does. What begins before `begin` has the value there, and the last part goes on as a line.
#pragma once

#include "kernels/float_function/float_function.h"

#include <cmath>

namespace zeropoint {
namespace {

struct Curve {
    static constexpr int kParts = 32, kTerms = 5;
    float begin = 0, rate = 1, part = 1;          // rate = 1 / part
    alignas(64) float term[kTerms][kParts] = {};  // term[k] of r^k, r from the beginning of the part on
    float error = 0;

    // `function` is kernels' float_function; `last`: the slope of the last part, which begins at its value.
    Curve(FloatFunctionFn kernel, FloatFunction function, float end, float last) {
        begin = -end;
        part = 2 * end / kParts;
        rate = 1 / part;
        const auto exact = [&](float x) {
            float y = 0;
            kernel({function, &x, &y}, 0, 1);
            return y;
        };
        for (int p = 0; p < kParts; ++p) {
            // Newton's polynomial through Chebyshev's places, multiplied out.
            double at[kTerms], d[kTerms];
            for (int k = 0; k < kTerms; ++k) {
                at[k] = 0.5 * part * (1 - std::cos((2 * k + 1) * 3.14159265358979323846 / (2 * kTerms)));
                d[k] = exact(static_cast<float>(begin + p * static_cast<double>(part) + at[k]));
            }
            for (int level = 1; level < kTerms; ++level)
                for (int k = kTerms - 1; k >= level; --k) d[k] = (d[k] - d[k - 1]) / (at[k] - at[k - level]);
            double c[kTerms] = {d[kTerms - 1]};
            for (int k = kTerms - 2; k >= 0; --k) {
                for (int j = kTerms - 1; j > 0; --j) c[j] = c[j - 1] - at[k] * c[j];
                c[0] = d[k] - at[k] * c[0];
            }
            for (int k = 0; k < kTerms; ++k) term[k][p] = static_cast<float>(c[k]);
        }
        const float start = begin + (kParts - 1) * part;
        for (int k = 0; k < kTerms; ++k) term[k][kParts - 1] = k == 0 ? exact(start) : k == 1 ? last : 0;
        // Between so many places the difference, a polynomial of the fifth degree or nearly so, does not double.
        constexpr int kPlaces = 64;
        for (int i = -4 * kPlaces; i < (kParts + 4) * kPlaces; ++i) {
            const float x = begin + part * (static_cast<float>(i) + 0.5f) / kPlaces;
            error = std::fmax(error, std::fabs(of(x) - exact(x)));
        }
        error *= 2;
    }

    // As the vector code computes it.
    float of(float x) const {
        const float u = x < begin ? begin : x;
        const float place = (u - begin) * rate;
        const int p = place < kParts - 1 ? static_cast<int>(place) : kParts - 1;
        const float r = std::fma(static_cast<float>(p), -part, u - begin);
        float y = term[kTerms - 1][p];
        for (int k = kTerms - 2; k >= 0; --k) y = std::fma(y, r, term[k][p]);
        return y;
    }
};

}  // namespace
}  // namespace zeropoint
