// Products of two 8-bit tensors, and of floats that are quantized on the way.
#include "engine/step_table.h"

#include "engine/steps/byte_tensors.h"
#include "operators/layers.h"

#include <cstring>

namespace zeropoint {
namespace {

Tensor batched(const Tensor& x, const Sizes& batch) {
    Tensor y = x;
    y.sizes = batch;
    y.sizes.insert(y.sizes.end(), x.sizes.end() - 2, x.sizes.end());
    y.strides = expanded_strides(x, y.sizes);
    return y;
}

// The same with its last two axes in each other's place.
Tensor turned(const Tensor& x, const Sizes& batch) {
    Tensor y = batched(x, batch);
    std::swap(y.sizes[batch.size()], y.sizes[batch.size() + 1]);
    std::swap(y.strides[batch.size()], y.strides[batch.size() + 1]);
    return y;
}

// The sizes of (..., M, K) times (..., K, N).
struct Matrices {
    Matrices(const Tensor& a, const Tensor& b) {
        if (a.rank() < 2 || b.rank() < 2 || a.size(a.rank() - 1) != b.size(b.rank() - 2))
            throw PlanError("cannot multiply " + text_of(a.sizes) + " with " + text_of(b.sizes));
        rows = a.size(a.rank() - 2);
        depth = a.sizes.back();
        columns = b.sizes.back();
        batch = broadcast({a.sizes.begin(), a.sizes.end() - 2}, {b.sizes.begin(), b.sizes.end() - 2});
    }
    Sizes result() const {
        Sizes sizes = batch;
        sizes.push_back(rows);
        sizes.push_back(columns);
        return sizes;
    }

    Sizes batch;
    int64_t rows = 0, columns = 0, depth = 0;
};

// A product of nothing: every byte is zero.
void fill(Planner& p, const Tensor& y, int64_t zero) {
    p.emit({y.place}, [zero, bytes = static_cast<size_t>(y.bytes())](void* const* at) {
        std::memset(at[0], static_cast<uint8_t>(zero), bytes);
    });
}

// y = a b of (..., M, K) and (..., K, N); batches broadcast. A matrix b that is stored is packed once.
class Matmul : public StepOf<2, 1> {
public:
    explicit Matmul(StepReader& r)
        : StepOf(r),
          a_(read_scale(r, "a_")),
          b_(read_scale(r, "b_")),
          y_(read_scale(r, "")) {
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
        const Matrices m(a, b);
        const Sizes& batch = m.batch;
        const int64_t rows = m.rows, columns = m.columns, depth = m.depth;
        const Tensor left = p.contiguous(batched(a, batch));
        const Tensor y = p.make(a.type, m.result());
        p.give(0, y);
        if (y.count() == 0) return;
        if (depth == 0) return fill(p, y, y_.zero_point);
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
        const Tensor right = p.contiguous(turned(b, batch));
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
    ByteScale a_, b_, y_;
    const StoredTensor* stored_ = nullptr;
    std::unique_ptr<LinearPlan> packed_;
};

// The same of floats, see batched_matmul_dynamic().
class MatmulDynamic : public StepOf<2, 1> {
public:
    explicit MatmulDynamic(StepReader& r) : StepOf(r) {}

    void plan(Planner& p) const override {
        p.runs("gemm");
        const Tensor &a = p.typed_input(0, ElementType::f32), &b = p.typed_input(1, ElementType::f32);
        const Matrices m(a, b);
        const Tensor left = p.contiguous(batched(a, m.batch)), right = p.contiguous(turned(b, m.batch));
        const Tensor y = p.make(ElementType::f32, m.result());
        p.give(0, y);
        if (y.count() == 0) return;
        if (m.depth == 0) return fill(p, y, 0);
        const int64_t batches = count_of(m.batch);
        p.needs_memory(batched_matmul_dynamic_bytes(batches, m.rows, m.columns, m.depth),
                       batched_matmul_scratch(m.columns, m.depth));
        p.emit(
            {left.place, right.place, y.place},
            [batches, rows = m.rows, columns = m.columns, depth = m.depth](void* const* at) {
                batched_matmul_dynamic(static_cast<const float*>(at[0]), static_cast<const float*>(at[1]), batches,
                                       rows, columns, depth, static_cast<float*>(at[2]));
            },
            static_cast<double>(y.count()) * static_cast<double>(m.depth));
    }
};

}  // namespace

void add_matmul_steps(StepTable& table) {
    table.add({{"matmul", made<Matmul>}, {"matmul_dynamic", made<MatmulDynamic>}});
}

}  // namespace zeropoint
