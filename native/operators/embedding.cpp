#include "operators/embedding.h"

#include "cpu/machine.h"
#include "cpu/memory.h"
#include "cpu/threads.h"
#include "kernels/half.h"
#include "kernels/registry.h"
#include "operators/ranges.h"
#include "operators/scratch.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <vector>

namespace zeropoint {
namespace {

constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

// The smallest of what several threads found.
class First {
public:
    void found(int64_t at) {
        int64_t before = at_.load(std::memory_order_relaxed);
        while (at < before && !at_.compare_exchange_weak(before, at, std::memory_order_relaxed)) {
        }
    }
    int64_t at() const { return at_.load(std::memory_order_relaxed); }

private:
    std::atomic<int64_t> at_{kNone};
};

// Rows per task: a task should be worth handing over.
int64_t rows_per_task(int64_t columns) {
    return std::max<int64_t>(1, worth_elements(4) / std::max<int64_t>(columns, 16));
}

// Where each bag begins, and where the last one ends.
const int64_t* checked_offsets(const std::string& op, const Bags& b, int64_t bags) {
    struct Tag {};
    const int64_t count = b.indices.count;
    int64_t* starts = reinterpret_cast<int64_t*>(scratch_of<Tag>(static_cast<size_t>(bags + 1) * sizeof(int64_t)));
    int64_t before = 0;
    const int64_t given = bags + (b.last ? 1 : 0);
    for (int64_t i = 0; i < given; ++i) {
        const int64_t offset = b.offsets[i];
        const bool first_is_zero = i > 0 || offset == 0;
        if (offset < before || offset > count || !first_is_zero) {
            std::string why = "offsets[" + std::to_string(i) + "] is " + std::to_string(offset);
            if (!first_is_zero)
                why += "; the first bag must begin at 0";
            else if (offset > count)
                why += ", but there are only " + std::to_string(count) + " indices";
            else
                why += ", before " + std::to_string(before) + ", where bag " + std::to_string(i - 1) +
                       " begins; they must not decrease";
            throw std::invalid_argument(op + ": " + why);
        }
        starts[i] = before = offset;
    }
    if (given == 0 && count > 0)
        throw std::invalid_argument(op + ": there are no bags, but " + std::to_string(count) + " indices");
    if (b.last && before != count)
        throw std::invalid_argument(op + ": with include_last_offset the last offset must be the number of indices, " +
                                    std::to_string(count) + ", got " + std::to_string(before));
    starts[bags] = count;
    return starts;
}

// Turns indices into rows.
class Picks {
public:
    Picks(const EmbeddingTensor& t, const Bags& b)
        : indices_(b.indices),
          mapping_(static_cast<const int32_t*>(b.mapping.data)),
          limit_(static_cast<uint64_t>(mapping_ != nullptr ? b.mapping.count : t.rows)),
          rows_(t.rows) {}

    // The rows of the indices [begin, end), as the kernels take them. An index that is not in the mapping becomes a row
    // that does not exist.
    const int64_t* of(int64_t begin, int64_t end) const {
        if (indices_.wide && mapping_ == nullptr) return static_cast<const int64_t*>(indices_.data) + begin;
        struct Tag {};
        int64_t* rows = reinterpret_cast<int64_t*>(scratch_of<Tag>(static_cast<size_t>(end - begin) * sizeof(int64_t)));
        for (int64_t i = begin; i < end; ++i) {
            const int64_t index = indices_[i];
            rows[i - begin] = mapping_ == nullptr                     ? index
                              : static_cast<uint64_t>(index) < limit_ ? mapping_[index]
                                                                      : rows_;
        }
        return rows;
    }

    std::string why(int64_t i) const {
        const int64_t index = indices_[i];
        const std::string of_rows = " is out of range for a table of " + std::to_string(rows_) + " rows";
        if (mapping_ == nullptr) return "index " + std::to_string(index) + of_rows;
        if (static_cast<uint64_t>(index) >= limit_)
            return "index " + std::to_string(index) + " is out of range for a compressed_indices_mapping of " +
                   std::to_string(limit_) + " entries";
        return "compressed_indices_mapping[" + std::to_string(index) + "] = " + std::to_string(mapping_[index]) +
               of_rows;
    }

private:
    IndexArray indices_;
    const int32_t* mapping_;
    uint64_t limit_;
    int64_t rows_;
};

}  // namespace

void embedding_bags(const std::string& op, const EmbeddingTensor& t, const Bags& b) {
    const bool cut = b.cut;
    const int64_t count = b.indices.count;
    const int64_t bags = cut ? b.offsets.count - (b.last ? 1 : 0) : count / std::max<int64_t>(b.length, 1);
    EmbeddingArgs args;
    args.table = t.table;
    args.rows = t.rows;
    args.columns = t.columns;
    args.bits = t.bits;
    args.offsets = cut ? checked_offsets(op, b, bags) : nullptr;
    args.length = b.length;
    args.pruned = b.mapping.data != nullptr;
    args.mode = b.mode;
    args.weights = b.weights;
    args.y = t.y;
    prepare_output(t.y, static_cast<size_t>(bags * t.columns) * sizeof(float));

    const EmbeddingFn kernel = kernels().embedding;
    const Picks picks(t, b);
    First bad;
    const auto run = [&](int64_t begin, int64_t end) {
        if (begin == end) return;
        EmbeddingArgs mine = args;
        mine.picks_begin = args.bag_begin(begin);
        mine.picks_end = args.bag_begin(end);
        mine.picks = picks.of(mine.picks_begin, mine.picks_end);
        const int64_t without_row = kernel(mine, begin, end);
        if (without_row >= 0) bad.found(without_row);
    };
    const int64_t grain = rows_per_task(t.columns);
    if (!cut) {
        parallel_for(bags, std::max<int64_t>(1, grain / std::max<int64_t>(b.length, 1)), run);
    } else if (count <= grain) {
        run(0, bags);
    } else {
        // Cut by indices, so that bags of different sizes are shared out evenly: a bag goes to where its first index
        // is, the empty ones at the end to the last task.
        const auto bag_at = [&](int64_t index) {
            return index == count ? bags : std::lower_bound(args.offsets, args.offsets + bags, index) - args.offsets;
        };
        parallel_for(count, grain, [&](int64_t begin, int64_t end) { run(bag_at(begin), bag_at(end)); });
    }
    if (bad.at() == kNone) return;
    const int64_t bag =
        cut ? std::upper_bound(args.offsets, args.offsets + bags, bad.at()) - args.offsets - 1 : bad.at() / b.length;
    throw std::out_of_range(op + ": " + picks.why(bad.at()) + " (position " + std::to_string(bad.at()) + ", bag " +
                            std::to_string(bag) + ")");
}

void embedding_unpack(const EmbeddingTensor& t) {
    EmbeddingArgs args;
    args.table = t.table;
    args.rows = t.rows;
    args.columns = t.columns;
    args.bits = t.bits;
    args.y = t.y;
    prepare_output(t.y, static_cast<size_t>(t.rows * t.columns) * sizeof(float));
    const EmbeddingFn kernel = kernels().embedding;
    parallel_for(t.rows, rows_per_task(t.columns), [&](int64_t begin, int64_t end) {
        struct Tag {};
        int64_t* rows = reinterpret_cast<int64_t*>(scratch_of<Tag>(static_cast<size_t>(end - begin) * sizeof(int64_t)));
        std::iota(rows, rows + (end - begin), begin);
        EmbeddingArgs mine = args;
        mine.picks = rows;
        mine.picks_begin = begin;
        mine.picks_end = end;
        kernel(mine, begin, end);
    });
}

int64_t embedding_pack(const float* x, int64_t rows, int64_t columns, int bits, const RowRanges& ranges,
                       uint8_t* table) {
    EmbeddingArgs format;
    format.columns = columns;
    format.bits = bits;
    const int64_t value_bytes = format.value_bytes(), row_bytes = format.row_bytes();
    prepare_output(table, static_cast<size_t>(rows * row_bytes));
    const Kernels& use = kernels();
    const float qmax = static_cast<float>((1 << bits) - 1);
    First bad;

    // The ranges of `count` rows from `first` on.
    const auto find_ranges = [&](int64_t first, int64_t count, float* low, float* high) {
        const float* from = x + first * columns;
        if (!ranges.least_loss && ranges.given == nullptr) {
            std::fill_n(low, count, std::numeric_limits<float>::infinity());
            std::fill_n(high, count, -std::numeric_limits<float>::infinity());
            use.minmax({from, {1, count, columns, 0, nullptr}, low, high}, 0, count * columns);
        }
        for (int64_t i = 0; i < count; ++i) {
            Range range{low[i] + 0.0f, high[i] + 0.0f};  // -0 becomes +0
            if (ranges.least_loss)
                range = least_loss_range(from + i * columns, columns, ranges.bins, ranges.ratio, bits);
            else if (ranges.given != nullptr)
                range = {ranges.given[2 * (first + i)], ranges.given[2 * (first + i) + 1]};
            low[i] = range.low;
            high[i] = range.high;
        }
    };
    // Writes scale and bias behind the values; false if they are not finite.
    const auto parameters = [&](const Range& range, uint8_t* end, QuantizeRangeArgs& q) {
        if (bits == 8) {
            // The small addend keeps a row of equal values finite; PyTorch has it, too.
            const float width = range.high - range.low, scale = width / 255.0f;
            q.low = range.low;
            q.inv = 255.0f / (width + 1e-8f);
            std::memcpy(end, &scale, sizeof scale);
            std::memcpy(end + sizeof scale, &range.low, sizeof range.low);
            return std::isfinite(scale) && std::isfinite(range.low);
        }
        uint16_t halves[2] = {0, to_half(range.low)};
        q.low = from_half(halves[1]);
        const float width = range.high - q.low;
        halves[0] = to_half(width == 0.0f ? 1.0f : width / qmax);
        float scale = from_half(halves[0]);
        if (scale == 0.0f) {
            halves[0] = to_half(1.0f);
            scale = 1.0f;
        }
        q.inv = 1.0f / scale;
        std::memcpy(end, halves, sizeof halves);
        return std::isfinite(scale) && std::isfinite(q.low);
    };
    if (columns == 0) {
        // No values, no range: what PyTorch writes for a row of zeros.
        for (int64_t r = 0; r < rows; ++r) {
            QuantizeRangeArgs q;
            parameters({0.0f, 0.0f}, table + r * row_bytes, q);
        }
        return -1;
    }
    parallel_for(rows, rows_per_task(columns), [&](int64_t begin, int64_t end) {
        struct Tag {};
        uint8_t* values = bits == 8 ? nullptr : scratch_of<Tag>(static_cast<size_t>(columns));
        // Some rows at a time, so that one does not wait for the divisions of another.
        constexpr int64_t kGroup = 16;
        float low[kGroup] = {}, high[kGroup] = {};
        QuantizeRangeArgs each[kGroup];
        for (int64_t first = begin; first < end; first += kGroup) {
            const int64_t count = std::min(kGroup, end - first);
            find_ranges(first, count, low, high);
            for (int64_t i = 0; i < count; ++i)
                if (!parameters({low[i], high[i]}, table + (first + i) * row_bytes + value_bytes, each[i])) {
                    bad.found(first + i);
                    return;
                }
            for (int64_t i = 0; i < count; ++i) {
                uint8_t* row = table + (first + i) * row_bytes;
                QuantizeRangeArgs& q = each[i];
                q.x = x + (first + i) * columns;
                q.y = bits == 8 ? row : values;
                q.qmax = qmax;
                use.quantize_range(q, 0, columns);
                if (bits < 8) use.pack({values, row, columns, bits}, 0, 1);
            }
        }
    });
    return bad.at() == kNone ? -1 : bad.at();
}

}  // namespace zeropoint
