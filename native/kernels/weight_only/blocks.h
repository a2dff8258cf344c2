// The blocks that a sum is made of, and what happens to a finished one. See weight_only.h.
#pragma once

#include "kernels/half.h"
#include "kernels/weight_only/weight_only.h"

namespace zeropoint {
namespace {

// Calls body(block, group, begin, end) for each block in order.
template <class Body>
void for_each_block(int64_t inputs, int64_t group_size, const Body& body) {
    int64_t block = 0, group = 0;
    for (int64_t start = 0; start < inputs; start += group_size, ++group) {
        const int64_t stop = inputs - start < group_size ? inputs : start + group_size;
        for (int64_t begin = start; begin < stop; begin += kWeightBlock)
            body(block++, group, begin, stop - begin < kWeightBlock ? stop : begin + kWeightBlock);
    }
}

inline void finish(const WeightOnlyArgs& a, int64_t row, int64_t n, float y) {
    if (a.bias != nullptr) y = y + a.bias[n];
    if (a.relu && y < 0) y = 0;
    const int64_t at = row * a.outputs + n;
    if (a.y_bfloat16)
        static_cast<uint16_t*>(a.y)[at] = to_bfloat16(y);
    else
        static_cast<float*>(a.y)[at] = y;
}

}  // namespace
}  // namespace zeropoint
