// Functions, norms, softmax and products of float32 tensors. See operators/float_functions.h: graphs compute them
// there, too.
#include "operators/float_functions.h"
#include "operators/residual_norm.h"

#include "cpu/threads.h"
#include "engine/step_table.h"
#include "engine/steps/byte_tensors.h"

#include <cmath>

namespace zeropoint {
namespace {

template <FloatFunction kFunction>
class Function : public OneInput {
public:
    explicit Function(StepReader& r) : OneInput(r) {}

    void plan(Planner& p) const override {
        p.runs("float_function");
        const Tensor x = p.dense(p.typed_input(0, ElementType::f32));
        const Tensor y = p.make_like(x, x.type, true);
        p.give(0, y);
        if (y.count() == 0) return;
        p.emit({x.place, y.place}, [count = y.count()](void* const* at) {
            float_function(kFunction, static_cast<const float*>(at[0]), static_cast<float*>(at[1]), count);
        });
    }
};

// Over the last axes. Inputs: x, weight or null, bias or null, flat, and what is added to x before, or none. With
// `x_scale` x is bytes, which are dequantized. With `sum` the first output is the sum. With `dtype` the result is
// quantized, too: the last output is bytes, and that before it, if there is one, float32. Not `centered`: RMS norm.
class FloatLayerNorm : public Step {
public:
    explicit FloatLayerNorm(StepReader& r)
        : weight_(r.optional_constant(1, ElementType::f32, 1)),
          bias_(r.optional_constant(2, ElementType::f32, 1)),
          axes_(r.integer("axes", 1, static_cast<int64_t>(kMostAxes))),
          eps_(r.number("eps")),
          centered_(!r.has("centered") || r.flag("centered")),
          to_bytes_(r.has("dtype")),
          from_bytes_(r.has("x_scale")),
          to_sum_(r.has("sum") && r.flag("sum")) {
        r.require_inputs(to_sum_ ? 4 : 3, 4);
        if (from_bytes_) {
            x_scale_ = static_cast<float>(r.scale("x_scale"));
            x_zero_point_ = static_cast<float>(r.integer("x_zero_point", -128, 255));
        }
        if (!(eps_ >= 0) || !std::isfinite(eps_)) r.fail("attribute 'eps' must not be negative");
        const size_t least_outputs = to_sum_ ? 2 : 1;
        if (r.outputs() != least_outputs + 1 || !to_bytes_) r.require_outputs(least_outputs);
        to_floats_ = !to_bytes_ || r.outputs() == least_outputs + 1;
        if (!to_bytes_) return;
        type_ = r.byte_type("dtype");
        scale_ = r.scale("scale");
        zero_point_ = r.integer("zero_point", -128, 255);
        const auto [least, most] = range_of(type_);
        low_ = r.integer("low", least, most);
        high_ = r.integer("high", low_, most);
    }

    void plan(Planner& p) const override {
        p.runs("float_layer_norm");
        Tensor x = from_bytes_ ? p.byte_input(0) : p.typed_input(0, ElementType::f32), other;
        const bool adds = p.has_input(3);
        if (adds) {
            other = p.typed_input(3, ElementType::f32);
            const Sizes sizes = broadcast(x.sizes, other.sizes);
            other = p.contiguous(repeated(other, sizes));
            x = p.contiguous(repeated(x, sizes));
        } else {
            x = p.contiguous(x);
        }
        if (x.rank() < axes_) throw PlanError("an input of shape " + text_of(x.sizes) + " has too few axes");
        ResidualNorm n;
        n.length = count_of({x.sizes.end() - axes_, x.sizes.end()});
        n.weight = floats_of(weight_, n.length);
        n.bias = floats_of(bias_, n.length);
        n.eps = eps_;
        n.centered = centered_;
        n.type = int_type(type_);
        n.scale = scale_;
        n.zero_point = static_cast<double>(zero_point_);
        n.low = static_cast<double>(low_);
        n.high = static_cast<double>(high_);
        n.x_type = from_bytes_ ? int_type(x.type) : IntType::u8;
        n.x_scale = x_scale_;
        n.x_zero_point = x_zero_point_;
        std::vector<Tensor> tensors{x};
        if (adds) tensors.push_back(other);
        size_t output = 0;
        const auto give = [&](ElementType type) {
            const Tensor made = p.make(type, x.sizes);
            p.give(output++, made);
            tensors.push_back(made);
        };
        if (to_sum_) give(ElementType::f32);
        if (to_floats_) give(ElementType::f32);
        if (to_bytes_) give(type_);
        if (to_bytes_ || from_bytes_)
            p.needs_memory(0, 2 * static_cast<double>(n.length) * sizeof(float) * ResidualNorm::kMostRows);
        if (x.count() == 0) return;
        const int64_t images = x.rank() > axes_ ? x.batch() : 1;
        n.rows = x.count() / n.length / images;
        p.emit_images(tensors, images,
                      [n, adds, sum = to_sum_, floats = to_floats_, bytes = to_bytes_,
                       from_bytes = from_bytes_](void* const* at, int64_t some) {
                          ResidualNorm now = n;
                          now.rows *= some;
                          if (from_bytes)
                              now.x_bytes = *at++;
                          else
                              now.x = static_cast<const float*>(*at++);
                          if (adds) now.other = static_cast<const float*>(*at++);
                          if (sum) now.sum = static_cast<float*>(*at++);
                          if (floats) now.y = static_cast<float*>(*at++);
                          if (bytes) now.bytes = *at;
                          residual_norm(now);
                      });
    }

private:
    static const float* floats_of(const StoredTensor* stored, int64_t length) {
        if (stored == nullptr) return nullptr;
        if (stored->count() != length)
            throw PlanError(std::to_string(stored->count()) + " numbers for rows of " + std::to_string(length));
        return reinterpret_cast<const float*>(stored->data);
    }

    static Tensor repeated(const Tensor& x, const Sizes& sizes) {
        return {x.type, sizes, expanded_strides(x, sizes), x.place};
    }

    const StoredTensor *weight_, *bias_;
    int64_t axes_;
    double eps_;
    bool centered_, to_bytes_, from_bytes_, to_sum_, to_floats_ = true;
    float x_scale_ = 1, x_zero_point_ = 0;
    ElementType type_ = ElementType::u8;
    double scale_ = 1;
    int64_t zero_point_ = 0, low_ = 0, high_ = 255;
};

// Over one axis.
class AlongAxis : public OneInput {
protected:
    explicit AlongAxis(StepReader& r) : OneInput(r), axis_(r.integer("axis", -8, 7)) {}

    // Gives the result and emits run(x, y, outer, length, inner).
    template <class Run>
    void emit(Planner& p, const Run& run) const {
        const Tensor x = p.contiguous(p.typed_input(0, ElementType::f32));
        const int64_t axis = x.rank() == 0 ? -1 : wrapped_axis(axis_, x.rank());
        const Tensor y = p.make(x.type, x.sizes);
        p.give(0, y);
        if (y.count() == 0) return;
        const int64_t length = axis < 0 ? 1 : x.size(axis);
        const int64_t inner = axis < 0 ? 1 : count_of({x.sizes.begin() + axis + 1, x.sizes.end()});
        if (inner > 1) p.needs_memory(static_cast<double>(length) * 16 * sizeof(float) * num_threads());
        p.emit({x.place, y.place}, [=, outer = y.count() / length / inner](void* const* at) {
            run(static_cast<const float*>(at[0]), static_cast<float*>(at[1]), outer, length, inner);
        });
    }

private:
    int64_t axis_;
};

// `safe`: zeros where an axis has nothing but -infinity.
class FloatSoftmax : public AlongAxis {
public:
    explicit FloatSoftmax(StepReader& r) : AlongAxis(r), safe_(r.flag("safe")) {}

    void plan(Planner& p) const override {
        p.runs("float_softmax");
        emit(p, [safe = safe_](const float* x, float* y, int64_t outer, int64_t length, int64_t inner) {
            float_softmax(x, y, outer, length, inner, safe);
        });
    }

private:
    bool safe_;
};

class FloatLogSoftmax : public AlongAxis {
public:
    explicit FloatLogSoftmax(StepReader& r) : AlongAxis(r) {}

    void plan(Planner& p) const override { emit(p, float_log_softmax); }
};

// y = a b of (..., M, K) and (..., K, N); batches broadcast.
class FloatMatmul : public StepOf<2, 1> {
public:
    explicit FloatMatmul(StepReader& r) : StepOf(r) {}

    void plan(Planner& p) const override {
        p.runs("float_gemm");
        Tensor a = p.typed_input(0, ElementType::f32);
        const Tensor& b = p.typed_input(1, ElementType::f32);
        if (a.rank() < 2 || b.rank() < 2 || a.size(a.rank() - 1) != b.size(b.rank() - 2))
            throw PlanError("cannot multiply " + text_of(a.sizes) + " with " + text_of(b.sizes));
        if (a.strides.back() != 1) a = p.contiguous(a);
        FloatMatrices m;
        m.batch = broadcast({a.sizes.begin(), a.sizes.end() - 2}, {b.sizes.begin(), b.sizes.end() - 2});
        const auto steps = [&](const Tensor& t) {
            Sizes sizes = m.batch;
            sizes.insert(sizes.end(), t.sizes.end() - 2, t.sizes.end());
            return expanded_strides(t, sizes);
        };
        m.a_batch = steps(a);
        m.b_batch = steps(b);
        m.a_batch.resize(m.batch.size());
        m.b_batch.resize(m.batch.size());
        m.rows = a.size(a.rank() - 2);
        m.depth = a.sizes.back();
        m.columns = b.sizes.back();
        m.a_row = a.strides[a.strides.size() - 2];
        m.b_row = b.strides[b.strides.size() - 2];
        m.b_column = b.strides.back();
        Sizes sizes = m.batch;
        sizes.push_back(m.rows);
        sizes.push_back(m.columns);
        const Tensor y = p.make(ElementType::f32, sizes);
        p.give(0, y);
        if (y.count() == 0) return;
        p.needs_memory(static_cast<double>(m.depth) * 64 * sizeof(float) * num_threads());
        p.emit(
            {a.place, b.place, y.place},
            [m](void* const* at) {
                float_matmul(static_cast<const float*>(at[0]), static_cast<const float*>(at[1]),
                             static_cast<float*>(at[2]), m);
            },
            static_cast<double>(y.count()) * static_cast<double>(m.depth));
    }
};

}  // namespace

void add_float_function_steps(StepTable& table) {
    table.add({{"float_layer_norm", made<FloatLayerNorm>},
               {"float_softmax", made<FloatSoftmax>},
               {"float_log_softmax", made<FloatLogSoftmax>},
               {"float_matmul", made<FloatMatmul>},
               {"float_gelu", made<Function<FloatFunction::gelu>>},
               {"float_gelu_tanh", made<Function<FloatFunction::gelu_tanh>>},
               {"float_tanh", made<Function<FloatFunction::tanh>>},
               {"float_sigmoid", made<Function<FloatFunction::sigmoid>>},
               {"float_silu", made<Function<FloatFunction::silu>>}});
}

}  // namespace zeropoint
