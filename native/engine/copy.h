// Copies between layouts: elements in other places, or repeated.
#pragma once

#include "engine/tensor.h"

#include <array>

namespace zeropoint {

// From the layout of one tensor to that of another of the same sizes and type; prepared once, run by many threads.
class StridedCopy {
public:
    StridedCopy(const Tensor& from, const Tensor& to);
    void run(const void* x, void* y) const;

private:
    struct Axis {
        int64_t size = 1, x = 0, y = 0;  // strides in bytes
    };
    template <class T>
    void rows(const uint8_t* x, uint8_t* y) const;
    void start(int64_t row, int64_t& x, int64_t& y) const;

    std::vector<Axis> outer_;  // outermost first
    Axis middle_, inner_;      // a plane of the copy: planes are transposed in tiles
    int64_t planes_ = 1, element_ = 1;
};

}  // namespace zeropoint
