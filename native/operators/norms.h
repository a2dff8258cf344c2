// Norms, softmax and means of whole tensors of 8-bit values. See kernels/normalize/normalize.h,
// kernels/moments/moments.h and kernels/softmax/softmax.h for the formulas.
#pragma once

#include "kernels/types.h"

namespace zeropoint {

// From x, with its parameters, to y, with its own. [lo, hi] is the range of y.
struct NormTensor {
    const void* x = nullptr;
    IntType type = IntType::u8;  // of x and y: u8 or s8
    float scale = 1;
    int32_t zero_point = 0;
    void* y = nullptr;
    float y_scale = 1;
    int32_t y_zero_point = 0;
    int32_t lo = 0, hi = 255;
};

// A dense tensor: images x channels x places, or images x places x channels.
struct NormShape {
    int64_t images = 0, channels = 0, places = 0;
    bool channels_last = false;

    int64_t numel() const { return images * channels * places; }
};

// One for each channel; without a weight it is 1, without a bias 0.
struct ChannelParams {
    const float* weight = nullptr;
    const float* bias = nullptr;
};

//   alpha = 1 / sqrt(var + eps) * weight * (scale / y_scale)
//   beta  = (bias - mean * (1 / sqrt(var + eps)) * weight) / y_scale        float32
//   y     = clamp(rne(fma(x - zero_point, alpha, beta)) + y_zero_point, lo, hi)
void batch_norm(const NormTensor& t, const NormShape& shape, const ChannelParams& params, const float* mean,
                const float* var, float eps);

//   m   = sum(x) / n                                 n integers at a time, zero points and all
//   var = max(fma(-m, m, sum(x * x) / n), 0)
//   r   = scale / sqrt(var * scale * scale + eps)    float32
//   y   = clamp(rne(fma((x - m) * r, weight, bias) / y_scale) + y_zero_point, lo, hi)
// over rows of `length` elements, each with a weight and a bias.
void layer_norm(const NormTensor& t, int64_t rows, int64_t length, const ChannelParams& params, float eps);

// The same over the channels of a group, with r * weight as one factor. Where the channels are innermost in memory and
// fewer than 32 in a group, the zero point is added before rounding, as PyTorch has it.
void group_norm(const NormTensor& t, const NormShape& shape, int64_t groups, const ChannelParams& params, float eps);

// Over the middle axis of outer x length x inner elements.
void softmax(const NormTensor& t, int64_t outer, int64_t length, int64_t inner);

// y[r] = clamp(rne(sum / length), lo, hi) for each row; of t, only x, y, type and the range count.
void mean_of_rows(const NormTensor& t, int64_t rows, int64_t length);

// The mean of each column of each image, images x rows x length, as PyTorch has it: quantized from a mean in float32.
// That sum is not exact, and at a tie its errors decide. So sums are taken in integers, and again in float32, in
// PyTorch's order, where a mean is close to a tie.
void mean_of_columns(const NormTensor& t, int64_t images, int64_t rows, int64_t length);

}  // namespace zeropoint
