// Linear layers and convolutions as users have them: quantized weights with their scales, a float bias, and tensors
// with a scale and a zero point on both sides.
//
//   acc = sum((x - x_zp) (w - w_zp)), exact
//   v = float(acc) * m[n] + b[n],   m[n] = x_scale * w_scale[n] / y_scale,  b[n] = bias[n] / y_scale
//   y = clamp(rne(v) + y_zp, lo, hi);  float32 output: y = v with y_scale = 1
//
// m and b are computed in float32, operation by operation. Layers may round as another engine: see
// operators/rounding.h.
#pragma once

#include "kernels/narrow_gemm/narrow_gemm.h"
#include "kernels/registry.h"
#include "operators/convolution.h"
#include "operators/float_stage.h"
#include "operators/linear.h"
#include "operators/rounding.h"

#include <memory>
#include <vector>

namespace zeropoint {

struct LayerInput {
    const void* x = nullptr;
    IntType type = IntType::u8;
    float scale = 1;
    int32_t zero_point = 0;
};

struct LayerOutput : Output {
    float scale = 1;  // float32 output, or a function: 1
    float z_scale = 1;
};

// Weight scales and bias, and what follows from them for a pair of activation scales. What the first pairs give is
// kept: most layers see no other.
class Rescaling {
public:
    // `scales` is 1 or n; `bias` may be null. Throws std::invalid_argument unless every scale is finite and positive.
    Rescaling(const char* operation, const float* scale, int64_t scales, const float* bias, int64_t n,
              Rounding rounding = Rounding::zeropoint);

    // Valid until this thread asks any Rescaling again, unless they are kept.
    struct Arrays {
        const float *multiplier = nullptr, *bias = nullptr;  // bias: null if there is none
        int64_t multipliers = 0;
        bool kept = false;                  // valid as long as the Rescaling
        const int32_t* int_bias = nullptr;  // these as in MatmulOutput
        const float* after = nullptr;
        float first = 1;
        bool zero_point_first = false;
    };
    // Throws std::invalid_argument unless both scales are finite and positive. `to_bytes`: the result is no float32.
    Arrays arrays(float x_scale, float y_scale, bool to_bytes) const;
    // Whether there is a bias that is added to products that were not rounded, in linear layers with float32 results.
    bool fuses_bias() const { return rounding_ == Rounding::fbgemm; }

private:
    struct Key {
        float x_scale, y_scale;
        bool to_bytes;
        bool operator==(const Key& other) const {
            return x_scale == other.x_scale && y_scale == other.y_scale && to_bytes == other.to_bytes;
        }
    };
    struct Values {
        std::vector<float> multiplier, bias, after;
        std::vector<int32_t> int_bias;
        float first = 1;
        bool zero_point_first = false;
    };
    void fill(const Key& key, Values& to) const;
    Arrays placed(const Values& values, bool kept) const;

    const char* operation_;
    std::vector<float> scale_, bias_;  // bias: empty if there is none
    int64_t outputs_;
    Rounding rounding_;
    SmallCache<Key, Values> kept_;
};

// Whether a narrow_gemm kernel may read these activations.
bool is_narrow(const uint8_t* x, int64_t n);

// A plan for any activations and, where the CPU multiplies seven bits of them faster, one for those, if `make` makes
// it.
template <class Plan>
class PlanPair {
public:
    template <class Make>
    explicit PlanPair(const Make& make) : any_(make(kernels().gemm())) {
        if (&kernels().narrow_gemm() != &kernels().gemm()) narrow_ = make(kernels().narrow_gemm());
    }

    const Plan& any() const { return *any_; }
    // For `bytes` bytes of input, which are looked at until one needs more than seven bits. Padding is the zero point.
    const Plan& for_input(const LayerInput& x, int64_t bytes) const {
        const bool narrow = narrow_ && x.type == IntType::u8 && x.zero_point <= kNarrowMost &&
                            is_narrow(static_cast<const uint8_t*>(x.x), bytes);
        return narrow ? *narrow_ : *any_;
    }

private:
    std::unique_ptr<Plan> any_, narrow_;
};

// Rows of float32 as bytes by their own range, in memory of this thread: valid until it makes others.
struct DynamicRows {
    LayerInput input;
    int64_t rows = 0;
    const float* scale = nullptr;  // of each row, and input.scale is 1; null if all have that of the input
};
// As u8 with one scale from the range of all (7 bits if reduce_range), or, with per_row, each row symmetrically in
// 8 bits, as u8 around 128: kernels with unsigned activations read them as they are. Throws std::invalid_argument,
// naming `operation`, unless x is finite.
DynamicRows quantize_rows(const char* operation, const float* x, int64_t rows, int64_t columns, bool reduce_range,
                          bool per_row);

class LinearLayer {
public:
    LinearLayer(const WeightTensor& w, int64_t outputs, int64_t inputs, const float* scale, int64_t scales,
                const float* bias, Rounding rounding = Rounding::zeropoint)
        : plans_([&](const GemmKernel& kernel) { return std::make_unique<LinearPlan>(w, outputs, inputs, kernel); }),
          rescaling_("linear", scale, scales, bias, outputs, rounding) {}

    // x is (rows, inputs), y is (rows, outputs), both contiguous.
    void run(const LayerInput& x, int64_t rows, const LayerOutput& y) const;

    // y is float32. relu: y = max(y, 0); function: y = f(y), or null.
    void run(const DynamicRows& x, float* y, bool relu, const FloatStage* function = nullptr) const;
    // float32 in and out, see quantize_rows().
    void run_dynamic(const float* x, int64_t rows, float* y, bool reduce_range, bool per_row, bool relu) const {
        run(quantize_rows("linear_dynamic", x, rows, inputs(), reduce_range, per_row), y, relu);
    }

    int64_t outputs() const { return plans_.any().outputs(); }
    int64_t inputs() const { return plans_.any().inputs(); }

private:
    void run_fused(const LinearPlan& plan, const LayerInput& x, int64_t rows, const LayerOutput& y) const;

    PlanPair<LinearPlan> plans_;
    Rescaling rescaling_;
};

class ConvLayer {
public:
    ConvLayer(const WeightTensor& w, const ConvShape& shape, const float* scale, int64_t scales, const float* bias,
              Rounding rounding = Rounding::zeropoint)
        : plans_([&](const GemmKernel& kernel) {
              const bool spare =
                  &kernel != &kernels().gemm() && ConvPlan::saves_multiplications(shape, kernels().gemm());
              return spare ? nullptr : std::make_unique<ConvPlan>(w, shape, ConvKernels{kernel, kernels().depthwise()});
          }),
          rescaling_("conv", scale, scales, bias, shape.out_channels, rounding) {}

    // See ConvPlan::run for the layouts.
    void run(const LayerInput& x, int64_t images, const Size3& in, bool channels_first, const LayerOutput& y) const;

    // float32 in and out: x is quantized to u8 with one scale from its own range (7 bits if reduce_range).
    // Throws std::invalid_argument unless x is finite.
    void run_dynamic(const float* x, int64_t images, const Size3& in, bool channels_first, float* y,
                     bool reduce_range) const;

    const ConvShape& shape() const { return plans_.any().shape(); }

private:
    PlanPair<ConvPlan> plans_;
    Rescaling rescaling_;
};

// y[b] = a[b] w[b]' for each of `batches` pairs of (rows, depth) and (columns, depth), one scale and zero point each.
void batched_matmul(const LayerInput& a, const LayerInput& w, int64_t batches, int64_t rows, int64_t columns,
                    int64_t depth, const LayerOutput& y);
// y = a w' for weights with one scale that have been packed before.
void matmul(const LayerInput& a, const LinearPlan& w, float w_scale, int64_t rows, const LayerOutput& y);
// The same of floats, with float32 output, quantized on the way: each row of a and of w by its own range.
//   a: 8 bits around 0, or, where no value of a is negative (weights of attention), 0..255 from 0 up
//   w: 8 bits around 0
//   y[b][m][n] = (sum_k a w * w_scale[n]) * a_scale[m]
// Throws std::invalid_argument unless both are finite.
void batched_matmul_dynamic(const float* a, const float* w, int64_t batches, int64_t rows, int64_t columns,
                            int64_t depth, float* y);
// The memory that a call takes for the bytes and scales of both, in bytes.
double batched_matmul_dynamic_bytes(int64_t batches, int64_t rows, int64_t columns, int64_t depth);
// The most memory that a thread takes for batched_matmul, in bytes.
double batched_matmul_scratch(int64_t columns, int64_t depth);

}  // namespace zeropoint
