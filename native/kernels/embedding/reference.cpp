// The specification of embedding, one element at a time. It is never optimized.
#include "kernels/embedding/embedding.h"
#include "kernels/half.h"
#include "kernels/simd/fused.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace zeropoint {
namespace {

struct Row {
    float scale = 0, bias = 0;

    Row(const EmbeddingArgs& a, const uint8_t* row) {
        const uint8_t* end = row + a.value_bytes();
        if (a.bits == 8) {
            std::memcpy(&scale, end, sizeof scale);
            std::memcpy(&bias, end + sizeof scale, sizeof bias);
        } else {
            uint16_t halves[2];
            std::memcpy(halves, end, sizeof halves);
            scale = from_half(halves[0]);
            bias = from_half(halves[1]);
        }
    }
};

float value(const EmbeddingArgs& a, const uint8_t* row, int64_t column) {
    const int64_t bit = column * a.bits;
    return static_cast<float>(row[bit / 8] >> (bit % 8) & ((1 << a.bits) - 1));
}

}  // namespace

int64_t embedding_reference(const EmbeddingArgs& a, int64_t begin, int64_t end) {
    for (int64_t i = begin < end ? a.bag_begin(begin) : 0; begin < end && i < a.bag_begin(end); ++i)
        if (!a.has(a.row(i)) && !a.is_zeros(a.row(i))) return i;
    for (int64_t bag = begin; bag < end; ++bag)
        for (int64_t c = 0; c < a.columns; ++c) {
            const int64_t first = a.bag_begin(bag), last = a.bag_begin(bag + 1);
            const bool max = a.mode == BagMode::max && last > first;
            float y = max ? -std::numeric_limits<float>::infinity() : 0.0f;
            for (int64_t i = first; i < last; ++i) {
                if (a.is_zeros(a.row(i))) {
                    if (max) y = 0.0f > y ? 0.0f : y;
                    continue;
                }
                const uint8_t* row = a.table + a.row(i) * a.row_bytes();
                const Row r(a, row);
                const float weight = a.weights != nullptr && !max ? a.weights[i] : 1.0f;
                const float bias = weight * r.bias;
                const float x = fused(value(a, row, c), weight * r.scale, max ? bias : y + bias);
                y = max && !(x > y) ? y : x;
            }
            if (a.mode == BagMode::mean && last > first) y /= static_cast<float>(last - first);
            a.y[bag * a.columns + c] = y;
        }
    return -1;
}

}  // namespace zeropoint
