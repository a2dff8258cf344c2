// Attention on bytes as one step: what two products, a softmax and the steps between them compute, with their bytes.
#include "operators/attention.h"

#include "engine/step_table.h"
#include "engine/steps/byte_tensors.h"

#include <cmath>
#include <limits>

namespace zeropoint {
namespace {

// Inputs: q (..., M, K), k (..., K, N), v (..., N, E), then the masks, in the order of the operations that read them;
// all of them broadcast. `heads_inside`: the result is (..., M, heads, E), with the last two axes of the batch and the
// rows in each other's places, instead of (..., heads, M, E).
class Attention : public Step {
public:
    explicit Attention(StepReader& r)
        : q_(read_scale(r, "q_")),
          k_(read_scale(r, "k_")),
          scores_(read_scale(r, "score_")),
          v_(read_scale(r, "v_")),
          y_(read_scale(r, "")),
          share_type_(r.byte_type("share_dtype")),
          share_scale_(r.scale("share_scale")),
          share_zero_point_(r.integer("share_zero_point", -128, 255)),
          safe_(r.flag("safe")),
          heads_inside_(r.flag("heads_inside")) {
        r.require_outputs(1);
        const auto [least, most] = range_of(share_type_);
        share_low_ = r.integer("share_low", least, most);
        share_high_ = r.integer("share_high", share_low_, most);
        if (share_zero_point_ < least || share_zero_point_ > most)
            r.fail("attribute 'share_zero_point' is outside the range of " + std::string(name_of(share_type_)));
        const Json::List& operations = r.list("operations");
        if (operations.size() > AttentionArgs::kOperations)
            r.fail("attribute 'operations' must have " + std::to_string(AttentionArgs::kOperations) + " at most");
        size_t masks = 0;
        for (const Json& json : operations) {
            operations_.push_back(operation(r, json));
            if (reads_mask(operations_.back().kind)) ++masks;
        }
        r.require_inputs(3 + masks);
    }

    void plan(Planner& p) const override {
        p.runs("attention");
        const Tensor &q = p.byte_input(0), &v = p.byte_input(2);
        const Tensor k = turned(p.byte_input(1));
        require_zero_point(q, q_.zero_point);
        require_zero_point(q, scores_.zero_point);
        require_zero_point(k, k_.zero_point);
        require_zero_point(v, v_.zero_point);
        if (const auto [low, high] = range_of(share_type_); y_.zero_point < low || y_.zero_point > high)
            throw PlanError("zero point " + std::to_string(y_.zero_point) + " is outside the range of " +
                            name_of(share_type_));
        if (q.rank() < 2 || v.rank() < 2 || q.sizes.back() != k.sizes.back())
            throw PlanError("cannot multiply " + text_of(q.sizes) + " with the transpose of " + text_of(k.sizes));
        // The scores, which masks may repeat.
        Sizes scores = broadcast(batch_of(q), batch_of(k));
        scores.push_back(q.size(q.rank() - 2));
        scores.push_back(k.size(k.rank() - 2));
        std::vector<Tensor> masks;
        for (size_t i = 3; i < p.inputs(); ++i) {
            masks.push_back(p.input(i));
            scores = broadcast(scores, masks.back().sizes);
        }
        if (scores.back() != v.size(v.rank() - 2))
            throw PlanError("cannot multiply shares of " + text_of(scores) + " with " + text_of(v.sizes));
        const Sizes batch = broadcast({scores.begin(), scores.end() - 2}, batch_of(v));
        if (batch.size() > HeadStrides::kAxes) throw PlanError("too many axes");
        const int64_t rows = scores[scores.size() - 2], columns = scores.back(), depth = q.sizes.back(),
                      width = v.sizes.back();
        const bool inside = heads_inside_ && !batch.empty();
        Sizes sizes = batch;
        sizes.push_back(rows);
        sizes.push_back(width);
        if (inside) std::swap(sizes[batch.size() - 1], sizes[batch.size()]);
        const Tensor y = p.make(share_type_, sizes);
        p.give(0, y);
        if (y.count() == 0) return;
        if (depth == 0 || columns == 0) throw PlanError("there is nothing to add up");

        AttentionArgs a;
        const size_t front = static_cast<size_t>(HeadStrides::kAxes) - batch.size();
        for (size_t i = 0; i < batch.size(); ++i) a.batch[front + i] = batch[i];
        a.rows = rows;
        a.columns = columns;
        a.depth = depth;
        a.width = width;
        std::vector<Place> places;
        std::vector<int64_t> apart;  // bytes from image to image of the batch
        const auto add = [&](const Tensor& x, const Sizes& strides) {
            places.push_back(x.place);
            apart.push_back(batch.empty() ? 0 : strides[0] * bytes_of(x.type));
        };
        const auto matrix = [&](const Tensor& from, int64_t lines, const ByteScale& scale) {
            const Tensor x = from.strides.back() == 1 || from.sizes.back() == 1 ? from : p.contiguous(from);
            AttentionMatrix m{nullptr, int_type(x.type), scale.zero_point, {}, 0};
            const Sizes strides = strides_in(x, batch, lines, x.sizes.back());
            add(x, strides);
            put(strides, front, m.heads, m.row);
            return m;
        };
        a.q = matrix(q, rows, q_);
        a.k = matrix(k, columns, k_);
        a.v = matrix(v, columns, v_);
        a.score_multiplier = q_.scale * k_.scale / scores_.scale;
        a.score_scale = scores_.scale;
        a.score_zero_point = scores_.zero_point;
        size_t next = 0;
        for (const ScoreOperation& given : operations_) {
            ScoreOperation o = given;
            if (reads_mask(o.kind)) {
                Tensor mask = masks[next++];
                const ElementType wanted =
                    o.kind == ScoreOperationKind::add_mask ? ElementType::f32 : ElementType::boolean;
                if (mask.type != wanted)
                    throw PlanError(std::string("a mask must be ") + name_of(wanted) + ", it is " + name_of(mask.type));
                if (!mask.sizes.empty() && mask.sizes.back() != 1 && mask.strides.back() != 1 &&
                    mask.strides.back() != 0)
                    mask = p.contiguous(mask);
                const Sizes strides = strides_in(mask, batch, rows, columns);
                add(mask, strides);
                put(strides, front, o.heads, o.row);
                o.column = strides.back();
            }
            a.operations[a.operation_count++] = o;
        }
        a.safe = safe_;
        a.share_type = int_type(share_type_);
        a.share_inverse = static_cast<float>(1.0 / share_scale_);
        a.share_zero_point = static_cast<int32_t>(share_zero_point_);
        a.share_low = static_cast<int32_t>(share_low_);
        a.share_high = static_cast<int32_t>(share_high_);
        a.multiplier = static_cast<float>(share_scale_) * v_.scale / y_.scale;
        a.zero_point = y_.zero_point;
        Sizes y_strides = y.strides;
        if (inside) std::swap(y_strides[batch.size() - 1], y_strides[batch.size()]);
        put(y_strides, front, a.y_heads, a.y_row);
        add(y, y_strides);
        p.needs_memory(0, a.memory());
        const double macs = static_cast<double>(y.count()) * static_cast<double>(columns) *
                            (1 + static_cast<double>(depth) / static_cast<double>(width));
        p.emit_images(
            std::move(places), std::move(apart), batch.empty() ? 1 : batch[0],
            [a, front](void* const* at, int64_t images) {
                AttentionArgs now = a;
                if (front < HeadStrides::kAxes) now.batch[front] = images;
                now.q.x = static_cast<const uint8_t*>(at[0]);
                now.k.x = static_cast<const uint8_t*>(at[1]);
                now.v.x = static_cast<const uint8_t*>(at[2]);
                size_t i = 3;
                for (int o = 0; o < now.operation_count; ++o)
                    if (reads_mask(now.operations[o].kind)) now.operations[o].mask = at[i++];
                now.y = static_cast<uint8_t*>(at[i]);
                attention(now);
            },
            macs);
    }

private:
    static bool reads_mask(ScoreOperationKind kind) {
        return kind == ScoreOperationKind::add_mask || kind == ScoreOperationKind::keep ||
               kind == ScoreOperationKind::replace;
    }
    // [name], or [name, number].
    static ScoreOperation operation(StepReader& r, const Json& json) {
        constexpr std::pair<const char*, ScoreOperationKind> kKinds[] = {
            {"multiply", ScoreOperationKind::multiply}, {"divide", ScoreOperationKind::divide},
            {"add", ScoreOperationKind::add},           {"add_mask", ScoreOperationKind::add_mask},
            {"keep", ScoreOperationKind::keep},         {"replace", ScoreOperationKind::replace}};
        const Json::List* list = json.list();
        const std::string* name = list != nullptr && !list->empty() ? (*list)[0].text() : nullptr;
        if (name == nullptr) r.fail("an operation must be a list that begins with its name");
        for (const auto& [known, kind] : kKinds) {
            if (*name != known) continue;
            ScoreOperation o;
            o.kind = kind;
            const size_t expected = kind == ScoreOperationKind::add_mask ? 1 : 2;
            if (list->size() != expected)
                r.fail("'" + *name + "' takes " + (expected == 1 ? "no number" : "one number"));
            if (expected == 2) o.number = number(r, (*list)[1]);
            return o;
        }
        r.fail("there is no operation '" + *name + "' of scores");
    }
    static float number(StepReader& r, const Json& json) {
        double value = 0;
        if (json.number(value)) return static_cast<float>(value);
        constexpr float kInfinity = std::numeric_limits<float>::infinity();
        if (json.text() != nullptr && *json.text() == "inf") return kInfinity;
        if (json.text() != nullptr && *json.text() == "-inf") return -kInfinity;
        r.fail("a number of an operation must be one, or \"inf\" or \"-inf\"");
    }

    static Tensor turned(const Tensor& b) {
        Tensor x = b;
        if (x.rank() < 2) throw PlanError("keys of shape " + text_of(b.sizes) + " are no matrices");
        std::swap(x.sizes[x.sizes.size() - 1], x.sizes[x.sizes.size() - 2]);
        std::swap(x.strides[x.strides.size() - 1], x.strides[x.strides.size() - 2]);
        return x;
    }
    static Sizes batch_of(const Tensor& x) { return {x.sizes.begin(), x.sizes.end() - 2}; }
    // Of (batch, rows, columns).
    static Sizes strides_in(const Tensor& x, const Sizes& batch, int64_t rows, int64_t columns) {
        Sizes sizes = batch;
        sizes.push_back(rows);
        sizes.push_back(columns);
        return expanded_strides(x, sizes);
    }
    static void put(const Sizes& strides, size_t front, HeadStrides& heads, int64_t& row) {
        const size_t axes = strides.size() - 2;
        for (size_t i = 0; i < axes; ++i) heads.along[front + i] = strides[i];
        row = strides[axes];
    }

    ByteScale q_, k_, scores_, v_, y_;
    ElementType share_type_;
    double share_scale_;
    int64_t share_zero_point_, share_low_ = 0, share_high_ = 255;
    bool safe_, heads_inside_;
    std::vector<ScoreOperation> operations_;
};

}  // namespace

void add_attention_steps(StepTable& table) { table.add({{"attention", made<Attention>}}); }

}  // namespace zeropoint
