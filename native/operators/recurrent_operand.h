// The operands of recurrent layers as bytes: the input and the hidden state, by the range of all rows or of each row.
#pragma once

#include "operators/recurrent_rows.h"

namespace zeropoint {

// Scales and zero points of some rows, one for each or, unless ranges are per_row, one for all.
class OperandRows {
public:
    // `memory` has kFloats for each row.
    static constexpr int64_t kFloats = 3;
    OperandRows(float* memory, int64_t rows, const RecurrentRanges& ranges)
        : rows_(rows),
          ranges_(ranges),
          scale_(memory),
          zero_point_(memory + rows),
          inverse_(memory + 2 * rows) {}

    int64_t ranges() const { return ranges_.per_row ? rows_ : 1; }
    // Range i is [low, high], which must be finite.
    void set_range(int64_t i, float low, float high);
    // `count` rows from row `first` on, which begin at x and q and have `length` elements with nothing between them.
    void quantize(const float* x, uint8_t* q, int64_t length, int64_t first, int64_t count) const;

    const float* scale() const { return scale_; }
    const float* zero_point() const { return zero_point_; }

private:
    int64_t rows_;
    RecurrentRanges ranges_;
    float *scale_, *zero_point_, *inverse_;
};

// Rows one behind the other, in memory of the thread that made them.
struct QuantizedInput {
    const uint8_t* q = nullptr;
    const float *scale = nullptr, *zero_point = nullptr;  // as in OperandRows
};

// The rows of an input x of a sequence, as bytes: valid until this thread makes others. `alone`: on this thread alone;
// ranges must be per_row then.
// Throws std::invalid_argument if one is not finite.
QuantizedInput quantized_input(const float* x, const SequenceRows& rows, int64_t inputs, const RecurrentRanges& ranges,
                               bool alone);

}  // namespace zeropoint
