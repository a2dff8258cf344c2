// How a layer with bytes as results rounds: as we do, or as an engine of PyTorch does, operation by operation in
// float32. s[n] = x_scale * w_scale[n], m[n] = s[n] / y_scale; y = clamp(rne(v) + y_zp).
//
//   zeropoint:  v = float(acc) * m[n] + bias[n] / y_scale
//   fbgemm:     v = (float(acc) + bias[n] / s[n]) * m[n]; with one scale for all fma(bias[n], 1 / s, float(acc)) * m
//   qnnpack:    v = float(acc + rne(bias[n] / s[n])) * (s[n] * (1 / y_scale)); with one rne(bias[n] * (1 / s))
//   onednn:     v = (float(acc) * (1 / (1 / x_scale)) * w_scale[n] + bias[n]) * (1 / y_scale); y = clamp(rne(v + y_zp))
//
// Results of float32 are v = float(acc) * s[n] + bias[n] for all but fbgemm in linear layers: fma(float(acc), s[n],
// bias[n]).
#pragma once

#include <cstdint>

namespace zeropoint {

enum class Rounding : int { zeropoint = 0, fbgemm = 1, qnnpack = 2, onednn = 3 };

constexpr bool is_rounding(int64_t code) { return code >= 0 && code <= static_cast<int64_t>(Rounding::onednn); }

}  // namespace zeropoint
