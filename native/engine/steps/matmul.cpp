// Products of two 8-bit tensors.
#include "engine/step_table.h"

#include "engine/steps/byte_tensors.h"
#include "operators/layers.h"

namespace zeropoint {
namespace {

// y = a b of (..., M, K) and (..., K, N); batches broadcast. A matrix b that is stored is packed once.
class Matmul : public Step {
public:
    explicit Matmul(StepReader& r) : a_(read_scale(r, "a_")), b_(read_scale(r, "b_")), y_(read_scale(r, "")) {
        r.require_inputs(2);
        r.require_outputs(1);
        const StoredTensor* b = r.stored(1);
        const bool is_matrix = b != nullptr && b->sizes.size() == 2 && b->count() > 0;
        if (!is_matrix || (b->type != ElementType::u8 && b->type != ElementType::s8)) return;
        stored_ = b;
        r.packs(1);
    }

    void prepare() override {
        if (stored_ == nullptr) return;
        const int64_t depth = stored_->sizes[0], columns = stored_->sizes[1];
        std::vector<uint8_t> turned(static_cast<size_t>(depth * columns));
        for (int64_t k = 0; k < depth; ++k)
            for (int64_t n = 0; n < columns; ++n)
                turned[static_cast<size_t>(n * depth + k)] = stored_->data[k * columns + n];
        packed_ = std::make_unique<LinearPlan>(WeightTensor{turned.data(), int_type(stored_->type), &b_.zero_point, 1},
                                               columns, depth);
    }

    void plan(Planner& p) const override {
        p.runs("gemm");
        const Tensor &a = p.byte_input(0), &b = p.byte_input(1);
        require_zero_point(a, a_.zero_point);
        require_zero_point(b, b_.zero_point);
        require_zero_point(a, y_.zero_point);
        if (a.rank() < 2 || b.rank() < 2 || a.size(a.rank() - 1) != b.size(b.rank() - 2))
            throw PlanError("cannot multiply " + text_of(a.sizes) + " with " + text_of(b.sizes));
        const int64_t rows = a.size(a.rank() - 2), depth = a.sizes.back(), columns = b.sizes.back();
        const Sizes batch = broadcast({a.sizes.begin(), a.sizes.end() - 2}, {b.sizes.begin(), b.sizes.end() - 2});
        const Tensor left = p.contiguous(batched(a, batch));
        Sizes sizes = batch;
        sizes.push_back(rows);
        sizes.push_back(columns);
        const Tensor y = p.make(a.type, sizes);
        p.give(0, y);
        if (y.count() == 0) return;
        if (depth == 0) throw PlanError("there is nothing to add up");
        LayerOutput out;
        out.type = a.type == ElementType::u8 ? OutputType::u8 : OutputType::s8;
        out.scale = y_.scale;
        out.zero_point = y_.zero_point;
        const auto [low, high] = range_of(a.type);
        out.lo = static_cast<int32_t>(low);
        out.hi = static_cast<int32_t>(high);
        const LayerInput first{nullptr, int_type(a.type), a_.scale, a_.zero_point};
        const LayerInput second{nullptr, int_type(b.type), b_.scale, b_.zero_point};
        const int64_t batches = count_of(batch);
        const double macs = static_cast<double>(y.count()) * static_cast<double>(depth);
        if (stored_ != nullptr) {
            p.needs_memory(0, LinearPlan::operand_bytes(depth, batches * rows));
            p.emit(
                {left.place, y.place},
                [this, first, out, rows = batches * rows](void* const* at) {
                    LayerInput x = first;
                    LayerOutput to = out;
                    x.x = at[0];
                    to.y = at[1];
                    matmul(x, *packed_, b_.scale, rows, to);
                },
                macs);
            return;
        }
        Tensor turned = batched(b, batch);
        std::swap(turned.sizes[batch.size()], turned.sizes[batch.size() + 1]);
        std::swap(turned.strides[batch.size()], turned.strides[batch.size() + 1]);
        const Tensor right = p.contiguous(turned);
        p.needs_memory(0, batched_matmul_scratch(columns, depth));
        p.emit(
            {left.place, right.place, y.place},
            [=](void* const* at) {
                LayerInput x = first, w = second;
                LayerOutput to = out;
                x.x = at[0];
                w.x = at[1];
                to.y = at[2];
                batched_matmul(x, w, batches, rows, columns, depth, to);
            },
            macs);
    }

private:
    static Tensor batched(const Tensor& x, const Sizes& batch) {
        Tensor y = x;
        y.sizes = batch;
        y.sizes.insert(y.sizes.end(), x.sizes.end() - 2, x.sizes.end());
        y.strides = expanded_strides(x, y.sizes);
        return y;
    }

    ByteScale a_, b_, y_;
    const StoredTensor* stored_ = nullptr;
    std::unique_ptr<LinearPlan> packed_;
};

}  // namespace

void add_matmul_steps(StepTable& table) { table.add<Matmul>("matmul"); }

}  // namespace zeropoint
