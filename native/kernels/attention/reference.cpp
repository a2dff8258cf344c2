// The specification of attention, one element at a time. It is never optimized.
#include "kernels/attention/attention.h"
#include "kernels/float_softmax/float_softmax.h"
#include "kernels/quantize/quantize.h"

#include <cmath>
#include <vector>

namespace zeropoint {

void float_softmax_reference(const FloatSoftmaxArgs& a, int64_t begin, int64_t end);
void quantize_reference(const QuantizeArgs& a, int64_t begin, int64_t end);

namespace {

int32_t value_of(IntType type, uint8_t byte) { return type == IntType::s8 ? static_cast<int8_t>(byte) : byte; }

// clamp(rne(acc * multiplier) + zero_point) - zero_point; NaN gives the largest.
float rounded(uint32_t acc, float multiplier, int32_t zero_point, IntType type) {
    const float v = static_cast<float>(static_cast<int32_t>(acc)) * multiplier;
    const float low = static_cast<float>(least_of(type) - zero_point), high = low + 255.0f;
    const float bounded = v < high ? v : high;
    return std::nearbyint(bounded < low ? low : bounded);
}

float after(const AttentionArgs& a, const ScoreOperation& o, int64_t head, int64_t row, int64_t column, float x) {
    const int64_t at = a.place(o.heads, head) + row * o.row + column * o.column;
    switch (o.kind) {
        case ScoreOperationKind::multiply: return x * o.number;
        case ScoreOperationKind::divide: return x / o.number;
        case ScoreOperationKind::add: return x + o.number;
        case ScoreOperationKind::add_mask: return x + static_cast<const float*>(o.mask)[at];
        case ScoreOperationKind::keep: return static_cast<const uint8_t*>(o.mask)[at] != 0 ? x : o.number;
        case ScoreOperationKind::replace: return static_cast<const uint8_t*>(o.mask)[at] != 0 ? o.number : x;
    }
    return x;
}

void one_row(const AttentionArgs& a, int64_t head, int64_t row) {
    const uint8_t *q = a.q.x + a.place(a.q.heads, head) + row * a.q.row, *k = a.k.x + a.place(a.k.heads, head),
                  *v = a.v.x + a.place(a.v.heads, head);
    std::vector<float> x(static_cast<size_t>(a.columns));
    for (int64_t n = 0; n < a.columns; ++n) {
        uint32_t acc = 0;
        for (int64_t d = 0; d < a.depth; ++d)
            acc += static_cast<uint32_t>((value_of(a.q.type, q[d]) - a.q.zero_point) *
                                         (value_of(a.k.type, k[n * a.k.row + d]) - a.k.zero_point));
        float score = rounded(acc, a.score_multiplier, a.score_zero_point, a.q.type) * a.score_scale;
        for (int i = 0; i < a.operation_count; ++i) score = after(a, a.operations[i], head, row, n, score);
        x[static_cast<size_t>(n)] = score;
    }
    float_softmax_reference({x.data(), x.data(), a.columns, a.safe}, 0, 1);
    std::vector<uint8_t> shares(static_cast<size_t>(a.columns));
    const float zero_point = static_cast<float>(a.share_zero_point);
    QuantizeArgs to;
    to.x = x.data();
    to.y = shares.data();
    to.dst = a.share_type;
    to.grid = {1, 1, a.columns, 0, nullptr};
    to.inv = &a.share_inverse;
    to.zero_point = &zero_point;
    to.qmin = a.share_low;
    to.qmax = a.share_high;
    quantize_reference(to, 0, a.columns);
    uint8_t* y = a.y + a.place(a.y_heads, head) + row * a.y_row;
    for (int64_t e = 0; e < a.width; ++e) {
        uint32_t acc = 0;
        for (int64_t n = 0; n < a.columns; ++n)
            acc += static_cast<uint32_t>((value_of(a.share_type, shares[static_cast<size_t>(n)]) - a.share_zero_point) *
                                         (value_of(a.v.type, v[n * a.v.row + e]) - a.v.zero_point));
        y[e] = static_cast<uint8_t>(static_cast<int32_t>(rounded(acc, a.multiplier, a.zero_point, a.share_type)) +
                                    a.zero_point);
    }
}

}  // namespace

void attention_reference(const AttentionArgs& a, int64_t begin, int64_t end, uint8_t*) {
    for (int64_t item = begin; item < end; ++item) {
        const int64_t head = item / a.blocks(), first = item % a.blocks() * AttentionArgs::kBlock;
        for (int64_t row = first; row < a.rows && row < first + AttentionArgs::kBlock; ++row) one_row(a, head, row);
    }
}

}  // namespace zeropoint
