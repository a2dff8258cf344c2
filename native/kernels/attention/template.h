// attention for any vector type V of simd/, and any Products: what multiplies 8-bit matrices.
//
// A Products is made of the arguments and of memory. pack(head) prepares keys and values of a head. scores(head, row,
// count, to, stride) writes x = (s - score_zero_point) * score_scale of `count` rows; share(i) is where the shares of
// the i-th of them are put as bytes, take_shares(count) reads them there, and products(head, row, count) multiplies
// them with the values and writes y. shares(head, row, x, stride) may do all before products, for kRows rows; where
// that is quicker than fewer rows without it (kWholeGroups), the last group of rows begins with some of the one before.
#pragma once

#include "kernels/attention/attention.h"
#include "kernels/float_softmax/template.h"
#include "kernels/quantize/template.h"

namespace zeropoint {
namespace {

inline int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

// Pieces of memory, each on a 64-byte boundary.
class Pieces {
public:
    explicit Pieces(uint8_t* memory) : at_(memory) {}
    template <class T>
    T* take(int64_t count) {
        T* const piece = reinterpret_cast<T*>(at_);
        at_ += round_up(count * static_cast<int64_t>(sizeof(T)), 64);
        return piece;
    }

private:
    uint8_t* at_;
};

template <class V>
struct ScoreLine {
    using F = typename V::F;

    const AttentionArgs& a;
    int64_t head, row;
    float* x;  // with room for whole vectors

    template <class Each>
    void each(const Each& one) const {
        for (int64_t i = 0; i < a.columns; i += V::W) V::store(x + i, one(V::load(x + i)));
    }
    template <class T>
    const T* mask_of(const ScoreOperation& o) const {
        return static_cast<const T*>(o.mask) + a.place(o.heads, head) + row * o.row;
    }
    template <class Each>
    void with_mask(const ScoreOperation& o, const Each& one) const {
        const uint8_t* mask = mask_of<uint8_t>(o);
        if (o.column == 0) {
            const uint8_t same = *mask;
            for (int64_t i = 0; i < a.columns; ++i) x[i] = one(x[i], same);
        } else {
            for (int64_t i = 0; i < a.columns; ++i) x[i] = one(x[i], mask[i]);
        }
    }
    void apply(const ScoreOperation& o) const {
        const F number = V::set(o.number);
        const float n = o.number;
        switch (o.kind) {
            case ScoreOperationKind::multiply: return each([&](F v) { return V::mul(v, number); });
            case ScoreOperationKind::divide: return each([&](F v) { return V::div(v, number); });
            case ScoreOperationKind::add: return each([&](F v) { return V::add(v, number); });
            case ScoreOperationKind::add_mask: {
                if (o.column == 0) return each([m = V::set(*mask_of<float>(o))](F v) { return V::add(v, m); });
                const float* mask = mask_of<float>(o);
                int64_t i = 0;
                for (; i + V::W <= a.columns; i += V::W) V::store(x + i, V::add(V::load(x + i), V::load(mask + i)));
                for (; i < a.columns; ++i) x[i] = x[i] + mask[i];
                return;
            }
            case ScoreOperationKind::keep:
                return with_mask(o, [n](float v, uint8_t mask) { return mask != 0 ? v : n; });
            case ScoreOperationKind::replace:
                return with_mask(o, [n](float v, uint8_t mask) { return mask != 0 ? n : v; });
        }
    }
    // From scores to what is taken to a power: answers the largest.
    float powers() const {
        const int last = a.operation_count - 1;
        for (int i = 0; i < last; ++i) apply(a.operations[i]);
        if (last >= 0 && a.operations[last].kind == ScoreOperationKind::multiply && a.columns == whole()) {
            const F number = V::set(a.operations[last].number);
            F most = V::set(FloatSoftmaxRow<V>::kLeast);
            for (int64_t i = 0; i < a.columns; i += V::W) {
                const F v = V::mul(V::load(x + i), number);
                V::store(x + i, v);
                most = V::max(v, most);
            }
            return V::reduce_max(most);
        }
        if (last >= 0) apply(a.operations[last]);
        for (int64_t i = a.columns; i < whole(); ++i) x[i] = FloatSoftmaxRow<V>::kLeast;
        return FloatSoftmaxRow<V>{x, x, whole()}.largest();
    }
    // From powers to exponentials: answers what they are multiplied with.
    float exponentials(float largest) const {
        return FloatSoftmaxRow<V>{x, x, whole()}.exponentials_of_row(largest, a.safe);
    }
    // Columns and what fills them up: it has no share.
    int64_t whole() const { return round_up(a.columns, FloatSoftmaxArgs::kLanes); }
    // From exponentials to the bytes of shares; `to` has room for whole blocks.
    template <class T>
    void shares(float multiplier, T* to) const {
        const F factor = V::set(multiplier);
        QuantizeArgs q;
        q.qmin = a.share_low;
        q.qmax = a.share_high;
        const QuantizeRange<V, float> range(q);
        const F inverse = V::set(a.share_inverse), zero_point = V::set(static_cast<float>(a.share_zero_point));
        const auto one = [&](int64_t i) {
            return quantize_vector<V, RoundingVariant::split, T>(V::mul(V::load(x + i), factor), inverse, zero_point,
                                                                 range);
        };
        for (int64_t i = 0; i < a.columns; i += 4 * V::W)
            V::store4(to + i, one(i), one(i + V::W), one(i + 2 * V::W), one(i + 3 * V::W));
    }
};

template <class V, class Products>
void attention_with(const AttentionArgs& a, int64_t begin, int64_t end, uint8_t* memory) {
    Pieces pieces(memory);
    // Whole blocks of four vectors are read; what is behind the last column is quantized, too, and not used.
    const int64_t stride = round_up(a.columns, 64);
    float* const x = pieces.take<float>(AttentionArgs::kRows * stride);
    for (int64_t i = 0; i < AttentionArgs::kRows * stride; ++i) x[i] = 0;
    Products products(a, pieces);
    int64_t packed = -1;
    for (int64_t item = begin; item < end; ++item) {
        const int64_t head = item / a.blocks(), first = item % a.blocks() * AttentionArgs::kBlock;
        const int64_t last = a.rows < first + AttentionArgs::kBlock ? a.rows : first + AttentionArgs::kBlock;
        if (head != packed) products.pack(head);
        packed = head;
        for (int64_t next = first; next < last; next += AttentionArgs::kRows) {
            const bool is_whole = Products::kWholeGroups && last - first >= AttentionArgs::kRows;
            const int64_t row = is_whole && last - next < AttentionArgs::kRows ? last - AttentionArgs::kRows : next;
            const int64_t count = last - row < AttentionArgs::kRows ? last - row : AttentionArgs::kRows;
            if (count == AttentionArgs::kRows && products.shares(head, row, x, stride)) {
                products.products(head, row, count);
                continue;
            }
            products.scores(head, row, count, x, stride);
            // All rows through one part after the other: the largest, and a sum, end with a long chain, during which
            // there is work on the next row.
            const auto line = [&](int64_t i) { return ScoreLine<V>{a, head, row + i, x + i * stride}; };
            float factor[AttentionArgs::kRows];
            for (int64_t i = 0; i < count; ++i) factor[i] = line(i).powers();
            for (int64_t i = 0; i < count; ++i) factor[i] = line(i).exponentials(factor[i]);
            for (int64_t i = 0; i < count; ++i) {
                if (a.share_type == IntType::u8)
                    line(i).shares(factor[i], products.share(i));
                else
                    line(i).shares(factor[i], reinterpret_cast<int8_t*>(products.share(i)));
            }
            products.take_shares(count);
            products.products(head, row, count);
        }
    }
}

}  // namespace
}  // namespace zeropoint
