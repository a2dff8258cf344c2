// y = epilogue(x w'): a linear layer on quantized activations. See kernels/gemm/gemm.h for the formula.
#pragma once

#include "operators/matmul.h"

#include <limits>

namespace zeropoint {

// Weights packed once for one kernel; run() may be called from many threads at once.
class LinearPlan {
public:
    // Weights are (outputs, inputs). Keeps no reference to them. The kernel is the best for the active level.
    LinearPlan(const WeightTensor& w, int64_t outputs, int64_t inputs);
    LinearPlan(const WeightTensor& w, int64_t outputs, int64_t inputs, const GemmKernel& kernel);

    // Other weights for the same kernel, in the memory of these.
    void pack(const WeightTensor& w, int64_t outputs, int64_t inputs);
    const GemmKernel& kernel() const { return kernel_; }

    // x is (rows, inputs) with x_stride elements from row to row, y is (rows, outputs), contiguous.
    // Throws std::invalid_argument for parameters out of range.
    void run(const MatmulInput& x, int64_t rows, int64_t x_stride, const MatmulOutput& y) const;
    void run(const MatmulInput& x, int64_t rows, const MatmulOutput& y) const { run(x, rows, inputs_, y); }
    // The output channels of the panels [begin, end) alone, on this thread alone.
    void run_panels(const MatmulInput& x, int64_t rows, const MatmulOutput& y, int64_t begin, int64_t end) const;

    // The most memory that a thread takes for activations of so many inputs, and rows.
    static double operand_bytes(int64_t inputs, int64_t rows = std::numeric_limits<int64_t>::max());
    // What it costs to read weights of `bytes` for a call of so many rows only, in bytes of activations: longer calls
    // read them again for every strip of rows.
    static int64_t bytes_read_again(int64_t bytes, int64_t rows);

    int64_t outputs() const { return weights_.n; }
    int64_t inputs() const { return inputs_; }

private:
    class Call;

    const GemmKernel& kernel_;
    int64_t inputs_;
    PackedWeights weights_;
    FoldCache folds_;
};

}  // namespace zeropoint
