// Recurrent layers with quantized weights on float32 sequences, a whole sequence in one call. See kernels/cell/cell.h
// for what is done with the two products of a step:
//
//   8-bit weights: float(sum((q - q_zp) (w - w_zp))) * (q_scale * w_scale[n]) + bias[n], where q is the operand
//     quantized to u8 by its own range: the input with one range for the whole sequence, the hidden state with one for
//     all rows of a step. PyTorch does so, too
//   per_row: every row of both by its own range, so a sequence gives the same numbers alone and beside others:
//     (float(sum(q (w - w_zp))) * w_scale[n] - q_zp[row] * sums[n]) * q_scale[row] + bias[n],
//     sums[n] = float(sum(w - w_zp)) * w_scale[n]
//   float16 weights: see kernels/half_gemm/half_gemm.h
//   float32 weights, of layers that are not quantized: see kernels/float_gemm/float_gemm.h
#pragma once

#include "cpu/machine.h"
#include "kernels/cell/cell.h"
#include "operators/linear.h"

#include <memory>
#include <vector>

namespace zeropoint {

// The input gates of several steps are computed together: of as many as stay in L2 until they are used, beside the
// weights.
inline int64_t gate_bytes() { return machine().l2_share() / 3; }

enum class RecurrentNumbers { bytes, halves, floats };

// How operands are quantized that are multiplied with 8-bit weights.
struct RecurrentRanges {
    bool reduce_range = false;  // to 7 bits
    bool per_row = false;       // each row by its own range

    bool operator==(const RecurrentRanges& other) const {
        return reduce_range == other.reduce_range && per_row == other.per_row;
    }
};

// One of the two matrices, (gates * hidden, inputs), contiguous.
struct RecurrentWeight {
    const void* data = nullptr;
    RecurrentNumbers numbers = RecurrentNumbers::bytes;
    IntType type = IntType::s8;           // of 8-bit weights: s8 or u8
    const int32_t* zero_point = nullptr;  // 1, or one for each row; also of 8-bit weights only
    int64_t zero_points = 0;
    const float* scale = nullptr;
    int64_t scales = 0;
    const float* bias = nullptr;  // one for each row, or none
};

// One direction of one layer: weights packed once for the active level; may be used by many threads at once.
class RecurrentLayer {
public:
    // Keeps no reference to the weights. Throws std::invalid_argument for parameters out of range.
    RecurrentLayer(Cell cell, int64_t hidden, int64_t inputs, const RecurrentRanges& ranges,
                   const RecurrentWeight& input, const RecurrentWeight& recurrent);

    Cell cell() const { return cell_; }
    int64_t hidden() const { return hidden_; }
    int64_t inputs() const { return inputs_; }
    RecurrentNumbers numbers() const { return numbers_; }
    // Whether operands are quantized.
    bool in_bytes() const { return numbers_ == RecurrentNumbers::bytes; }
    const RecurrentRanges& ranges() const { return ranges_; }
    // Whether their rows have ranges of their own: then the cell kernel scales the products.
    bool by_rows() const { return in_bytes() && ranges_.per_row; }
    // Of kCellBlock hidden units.
    int64_t blocks() const { return blocks_; }

private:
    friend class RecurrentRun;

    Cell cell_;
    int64_t hidden_, inputs_, blocks_;
    RecurrentNumbers numbers_;
    RecurrentRanges ranges_;
    // 8-bit weights
    const GemmKernel* kernel_ = nullptr;
    std::unique_ptr<LinearPlan> input_;
    PackedWeights recurrent_;
    std::vector<float> input_scale_, recurrent_scale_;
    std::vector<float> input_sums_, recurrent_sums_, no_bias_;  // by_rows()
    std::vector<int32_t> no_sums_;
    // float16 and float32 weights
    AlignedBytes input_panels_, recurrent_panels_;
    std::vector<float> input_bias_, recurrent_bias_;
};

// A sequence whose rows stand step after step; rows(t) of them belong to step t, never more than to the step before.
// Row r of a step continues row r of the step before.
struct RecurrentSequence {
    const float* x = nullptr;              // (all rows, inputs)
    const int64_t* batch_sizes = nullptr;  // the rows of each step; null if every step has `batch`
    int64_t steps = 0;
    float* y = nullptr;  // (all rows, directions * hidden)
    // (directions, rows(0), hidden)
    const float* first_h = nullptr;
    const float* first_c = nullptr;  // lstm only, as is last_c
    float* last_h = nullptr;
    float* last_c = nullptr;
    int64_t batch = 0;

    int64_t rows(int64_t t) const { return batch_sizes != nullptr ? batch_sizes[t] : batch; }
};

// Runs one layer in one direction, or in both: layers[1] from the end of each row to its beginning.
// Throws std::invalid_argument if what must be quantized is not finite.
void run_recurrent(const std::vector<const RecurrentLayer*>& layers, const RecurrentSequence& sequence);

}  // namespace zeropoint
