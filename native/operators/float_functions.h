// Functions, norms, softmax and products of whole float32 tensors, for what a model leaves unquantized. One fixed
// formula each, so that graphs and programs give the same bytes on every CPU; see kernels/float_*/ for them.
#pragma once

#include "kernels/float_function/float_function.h"

#include <vector>

namespace zeropoint {

// y[i] = function(x[i]); y may be x.
void float_function(FloatFunction function, const float* x, float* y, int64_t count);

// Over rows of `length` elements; without a weight it is 1, without a bias 0. y may be x. Not `centered`: RMS norm.
void float_layer_norm(const float* x, float* y, int64_t rows, int64_t length, const float* weight, const float* bias,
                      double eps, bool centered = true);

// Over the middle axis of outer x length x inner elements; y may be x. `safe`: a row of -infinity gives zeros.
void float_softmax(const float* x, float* y, int64_t outer, int64_t length, int64_t inner, bool safe);

// y = (x - max(x)) - log(sum(exp(x - max(x)))) over the middle axis, the sum and its logarithm in float64; y may be x.
void float_log_softmax(const float* x, float* y, int64_t outer, int64_t length, int64_t inner);

// How matrices lie in memory, in elements. Those of a have rows without gaps between their elements; y is contiguous.
struct FloatMatrices {
    std::vector<int64_t> batch, a_batch, b_batch;  // sizes of the batch; steps of a and of b along them
    int64_t rows = 0, depth = 0, columns = 0;
    int64_t a_row = 0, b_row = 0, b_column = 0;

    int64_t batches() const {
        int64_t n = 1;
        for (int64_t size : batch) n *= size;
        return n;
    }
};

// y = a b for each of a batch of matrices, (rows, depth) times (depth, columns).
void float_matmul(const float* a, const float* b, float* y, const FloatMatrices& m);

}  // namespace zeropoint
