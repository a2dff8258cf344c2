// Some rows of a sequence: rows [first, first + most) of every step that has them.
#pragma once

#include "operators/recurrent.h"

#include <algorithm>
#include <vector>

namespace zeropoint {

class SequenceRows {
public:
    SequenceRows(const RecurrentSequence& sequence, int64_t first, int64_t most)
        : first_(first),
          all_(first == 0 && most >= sequence.rows(0)) {
        int64_t place = 0;
        for (int64_t t = 0; t < sequence.steps && sequence.rows(t) > first; ++t) {
            places_.push_back(place + first);
            offsets_.push_back(offsets_.back() + std::min(most, sequence.rows(t) - first));
            place += sequence.rows(t);
        }
    }

    int64_t first() const { return first_; }
    // Whether these are all rows: neighbours in the sequence, too.
    bool all() const { return all_; }
    int64_t steps() const { return static_cast<int64_t>(places_.size()); }
    int64_t rows(int64_t t) const { return offset(t + 1) - offset(t); }
    int64_t all_rows() const { return offsets_.back(); }
    // The first row of step t: among those of the sequence, and among these.
    int64_t place(int64_t t) const { return places_[static_cast<size_t>(t)]; }
    int64_t offset(int64_t t) const { return offsets_[static_cast<size_t>(t)]; }

private:
    int64_t first_;
    bool all_;
    std::vector<int64_t> places_, offsets_{0};
};

// The rows of a sequence in `parts` parts with about as many steps each.
inline std::vector<SequenceRows> cut_rows(const RecurrentSequence& sequence, int64_t parts) {
    const int64_t batch = sequence.rows(0);
    std::vector<int64_t> length(static_cast<size_t>(batch), 0);  // of each row
    int64_t all = 0, ended = batch;
    for (int64_t t = 0; t < sequence.steps; ++t) {
        all += sequence.rows(t);
        for (; ended > sequence.rows(t); --ended) length[static_cast<size_t>(ended) - 1] = t;
    }
    std::fill_n(length.begin(), ended, sequence.steps);
    std::vector<SequenceRows> cut;
    for (int64_t part = 0, row = 0, before = 0; part < parts; ++part) {
        const int64_t first = row;
        while (row < batch && (part == parts - 1 || before < all * (part + 1) / parts))
            before += length[static_cast<size_t>(row++)];
        if (row > first) cut.emplace_back(sequence, first, row - first);
    }
    return cut;
}

}  // namespace zeropoint
