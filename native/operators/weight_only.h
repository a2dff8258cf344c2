// Linear layers with small weights and float activations: y = x w' + bias, w unpacked in registers.
// See kernels/weight_only/weight_only.h for the formula and its order of summation.
#pragma once

#include "kernels/weight_only/weight_only.h"

#include <memory>
#include <vector>

namespace zeropoint {

// Weights as they are stored: (outputs, inputs), contiguous.
enum class WeightStorage : int {
    u8 = 0,
    s8 = 1,
    u4 = 2,   // rows of (inputs + 1) / 2 bytes, the first of two values in the low bits
    f16 = 3,  // no scales
};

// (outputs, groups) values, or one for each output, or one for all; count says which. Groups are group_size inputs
// each, the last may be shorter.
struct WeightParameters {
    const float* data = nullptr;
    int64_t count = 0;
};

struct WeightOnlyTensor {
    const void* data = nullptr;
    WeightStorage storage = WeightStorage::s8;
    int64_t group_size = 0;       // a multiple of 8, or all inputs
    WeightParameters scale;       // finite
    WeightParameters zero_point;  // integers in the range of the storage
    WeightParameters shift;       // w = (q - zero_point) * scale + shift; count 0: none
};

enum class FloatType : int { f32 = 0, bf16 = 1 };

// Weights packed once for one kernel; run() may be called from many threads at once.
class WeightOnlyLayer {
public:
    // Keeps no reference to the arguments; bias has `outputs` elements or is null. The kernel is the best for the
    // active level. Throws std::invalid_argument for parameters out of range.
    WeightOnlyLayer(const WeightOnlyTensor& w, int64_t outputs, int64_t inputs, const float* bias);
    WeightOnlyLayer(const WeightOnlyTensor& w, int64_t outputs, int64_t inputs, const float* bias,
                    const WeightOnlyKernel& kernel);

    // x is (rows, inputs), y is (rows, outputs), both contiguous. relu: y = max(y, 0).
    void run(const void* x, FloatType x_type, int64_t rows, void* y, FloatType y_type, bool relu) const;

    int64_t outputs() const { return outputs_; }
    int64_t inputs() const { return inputs_; }

private:
    void pack(const WeightOnlyTensor& w);
    void run_rows(const void* x, FloatType x_type, int64_t rows, void* y, FloatType y_type, bool relu) const;
    std::vector<float> spread(const WeightParameters& p, float added) const;
    int64_t panels() const { return (outputs_ + kWeightPanel - 1) / kWeightPanel; }

    const WeightOnlyKernel& kernel_;
    int64_t outputs_, inputs_, group_size_, groups_;
    WeightFormat format_;
    std::unique_ptr<uint8_t[]> memory_;
    uint8_t* packed_ = nullptr;
    std::vector<float> scale_, zero_point_, shift_, bias_;
};

}  // namespace zeropoint
