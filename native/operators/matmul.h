// What linear layers and convolutions share: weights packed for a gemm kernel, inputs, outputs, and the division of the
// work into tasks.
#pragma once

#include "cpu/memory.h"
#include "kernels/binary/binary.h"
#include "kernels/gemm/gemm.h"
#include "operators/small_cache.h"

#include <memory>
#include <vector>

namespace zeropoint {

struct FloatStage;  // operators/float_stage.h

// Quantized weights as they are stored: output channels first, then taps, then channels; contiguous.
struct WeightTensor {
    const void* data = nullptr;
    IntType type = IntType::s8;           // s8 or u8
    const int32_t* zero_point = nullptr;  // in the range of the type
    int64_t zero_points = 0;              // 0 (all are zero), 1, or one for each output channel

    int32_t zero_point_of(int64_t n) const { return zero_points == 0 ? 0 : zero_point[zero_points == 1 ? 0 : n]; }
};

struct MatmulInput {
    const void* x = nullptr;
    IntType type = IntType::u8;  // u8 or s8
    int32_t zero_point = 0;      // in the range of the type
};

// The output of a layer, and what is done last.
struct Output : OutputForm {
    void* y = nullptr;
    // Then, of bytes, y = table[y], if given: 256 bytes, as in kernels/lookup/lookup.h.
    const uint8_t* table = nullptr;
    // Last, y = y o b, with a tensor b of the type, shape and layout of y, which may be y; a and y are not looked at.
    // Not together with z. See operators/fused_output.h.
    const BinaryArgs* then = nullptr;
    // Linear layers, and nothing else beside it: scales are those of float32 output, which goes through a function, and
    // is then rounded if y is bytes. See operators/float_stage.h.
    const FloatStage* function = nullptr;
};

// See Epilogue for the formula. Arrays have one element for each output channel.
struct MatmulOutput : Output {
    const int32_t* bias = nullptr;      // in units of x_scale * w_scale[n], or none
    const float* multiplier = nullptr;  // x_scale * w_scale[n] / y_scale; float32 output: x_scale * w_scale[n]
    int64_t multipliers = 1;            // 1, or one for each output channel
    const float* float_bias = nullptr;  // in units of y_scale, or none
    // See Epilogue; `after` may be read up to kPanel elements behind the last output channel.
    const float* after = nullptr;
    float first = 1;
    bool zero_point_first = false;
    bool kept = false;       // bias, multiplier and float_bias stay where and as they are as long as the plan does
    float z_multiplier = 0;  // z_scale / y_scale
};

// The weights of some output channels, packed for one kernel.
struct PackedWeights {
    int64_t n = 0, tap_count = 0, channels = 0;
    AlignedBytes panels;
    std::vector<int32_t> sums;        // of the stored weights of each output channel; padded as Epilogue's arrays are
    std::vector<int32_t> zero_point;  // of the stored weights; empty if all are zero

    int64_t panel_count() const { return (n + kPanel - 1) / kPanel; }
    int64_t macs_per_row() const { return n * tap_count * channels; }
};

// A packed tap is made of some taps of the stored weights, which are neighbours in the input: taps[t] lists them.
// `first` is the first output channel; a stored output channel has `stored_taps` taps of `channels` channels.
PackedWeights pack_weights(const GemmKernel& kernel, const WeightTensor& w, int64_t first, int64_t n,
                           int64_t stored_taps, int64_t channels, const std::vector<std::vector<int64_t>>& taps);
// The same in the memory of other packed weights, which is made larger if it has to be.
void pack_weights(const GemmKernel& kernel, const WeightTensor& w, int64_t first, int64_t n, int64_t stored_taps,
                  int64_t channels, const std::vector<std::vector<int64_t>>& taps, PackedWeights& packed);

// The output of the channels from `first` on as a kernel wants it: arrays padded, zero points folded into the bias.
// Uses fold_bytes() of memory of this thread, at `memory`.
Epilogue fold(Operand operand, const PackedWeights& w, const Activation& activation, const MatmulOutput& out,
              int64_t first, uint8_t* memory);
// How much memory fold() needs for these weights.
size_t fold_bytes(const PackedWeights& w);
// The two parts of fold(): the arrays, and the output with arrays that were made before.
void fold_arrays(Operand operand, const PackedWeights& w, const Activation& activation, const MatmulOutput& out,
                 int64_t first, uint8_t* memory);
Epilogue folded(const PackedWeights& w, const MatmulOutput& out, const uint8_t* memory);

// Arrays of fold() that are made once for every zero point of the input and every pair of kept arrays.
class FoldCache {
public:
    // Those of all weights of a plan: make(memory) fills `bytes` bytes. Null if they cannot be kept.
    template <class Make>
    const uint8_t* get(Operand operand, const Activation& activation, const MatmulOutput& out, size_t bytes,
                       const Make& make) const {
        if (!out.kept) return nullptr;
        const int32_t zero_point = operand == Operand::shifted ? activation.shifted_zero_point() : 0;
        const AlignedBytes* arrays = arrays_.get({zero_point, out.bias, out.multiplier, out.float_bias}, [&] {
            AlignedBytes made(bytes);
            make(made.data());
            return made;
        });
        return arrays != nullptr ? arrays->data() : nullptr;
    }
    void clear() { arrays_.clear(); }

private:
    struct Key {
        int32_t zero_point;
        const int32_t* bias;
        const float *multiplier, *float_bias;
        bool operator==(const Key& other) const {
            return zero_point == other.zero_point && bias == other.bias && multiplier == other.multiplier &&
                   float_bias == other.float_bias;
        }
    };
    SmallCache<Key, AlignedBytes> arrays_;
};

Activation activation_of(const MatmulInput& input);

// Throws std::invalid_argument, naming `operation`, unless types, zero points and counts are in range.
void require_valid(const char* operation, const WeightTensor& w, int64_t n);
void require_valid(const char* operation, const MatmulInput& input, const MatmulOutput& output, int64_t n);

// Rows in strips times panels in chunks: enough tasks for every thread, none too small.
struct Tiling {
    int64_t strips = 0, chunks = 1, panels_per_chunk = 0;
    int64_t grain = 1;  // tasks that a thread should take together

    int64_t tasks() const { return strips * chunks; }
};
// `macs`: multiplications of one strip; `panels`: of the weights.
Tiling tiling(int64_t strips, int64_t macs, int64_t panels);

}  // namespace zeropoint
