// The epilogue of a plan with one set of weights: folded once where its arrays can be kept, else for each call.
#pragma once

#include "operators/matmul.h"
#include "operators/scratch.h"

namespace zeropoint {

struct FoldMemory;

// What fold() gives, from arrays in `kept`; without these, in memory of this thread until its next call.
inline Epilogue kept_fold(const FoldCache& kept, Operand operand, const PackedWeights& w, const Activation& activation,
                          const MatmulOutput& y) {
    const auto fill = [&](uint8_t* to) { fold_arrays(operand, w, activation, y, 0, to); };
    const uint8_t* arrays = kept.get(operand, activation, y, fold_bytes(w), fill);
    if (arrays == nullptr) {
        uint8_t* const memory = scratch_of<FoldMemory>(fold_bytes(w));
        fill(memory);
        arrays = memory;
    }
    return folded(w, y, arrays);
}

}  // namespace zeropoint
