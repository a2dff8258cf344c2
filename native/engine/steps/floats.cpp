// Functions of float32 tensors, for what a model leaves unquantized. Sums, products and bounds are those of IEEE 754,
// which every CPU and PyTorch have, to the last bit; NaN stays NaN.
#include "cpu/threads.h"
#include "engine/step_table.h"

#include <algorithm>
#include <cmath>

namespace zeropoint {
namespace {

constexpr int64_t kGrain = 16384;  // elements that are worth a thread

// The elements of y, row by row in memory; a row is one stretch of it, in which operands have a step each.
struct Rows {
    struct Axis {
        int64_t size, a, b;
    };
    std::vector<Axis> outer;
    int64_t rows = 1;
    Axis inner{1, 0, 0};

    Rows(const Tensor& y, const Sizes& a, const Sizes& b) {
        for (const int64_t d : y.memory_order()) {
            const size_t axis = static_cast<size_t>(d);
            const Axis next{y.sizes[axis], a[axis], b[axis]};
            if (next.size == 1) continue;
            if (!outer.empty() && outer.back().a == next.size * next.a && outer.back().b == next.size * next.b)
                outer.back() = {outer.back().size * next.size, next.a, next.b};
            else
                outer.push_back(next);
        }
        if (outer.empty()) return;
        inner = outer.back();
        outer.pop_back();
        for (const Axis& axis : outer) rows *= axis.size;
    }

    // body(a offset, b offset, y offset, count)
    template <class Body>
    void run(const Body& body) const {
        if (rows == 1) {
            parallel_for(inner.size, kGrain, [&](int64_t begin, int64_t end) {
                body(begin * inner.a, begin * inner.b, begin, end - begin);
            });
            return;
        }
        parallel_for(rows, std::max<int64_t>(1, kGrain / inner.size), [&](int64_t begin, int64_t end) {
            for (int64_t row = begin; row < end; ++row) {
                int64_t rest = row, a = 0, b = 0;
                for (size_t i = outer.size(); i-- > 0;) {
                    const int64_t at = rest % outer[i].size;
                    rest /= outer[i].size;
                    a += at * outer[i].a;
                    b += at * outer[i].b;
                }
                body(a, b, row * inner.size, inner.size);
            }
        });
    }
};

enum class FloatOperation { add, subtract, multiply, divide };

// y = a (operation) b, one of which may be repeated; or of each element and attribute "number", if there is no b.
class FloatBinary : public Step {
public:
    explicit FloatBinary(StepReader& r) : operation_(operation_of(r, r.text("operation"))) {
        r.require_inputs(1, 2);
        r.require_outputs(1);
        if (r.inputs().size() == 1) number_ = static_cast<float>(r.number("number"));
    }

    void plan(Planner& p) const override {
        const Tensor& a = p.typed_input(0, ElementType::f32);
        if (p.inputs() == 1) {
            const Tensor y = p.make_like(a, ElementType::f32, a.is_dense());
            p.give(0, y);
            if (y.count() == 0) return;
            const Rows rows(y, a.strides, Sizes(a.sizes.size(), 0));
            p.emit({a.place, y.place}, [this, rows](void* const* at) { compute(rows, at[0], &number_, at[1]); });
            return;
        }
        const Tensor& b = p.typed_input(1, ElementType::f32);
        const Sizes sizes = broadcast(a.sizes, b.sizes);
        const bool alike = a.sizes == b.sizes && a.strides == b.strides && a.is_dense();
        const Tensor y = a.sizes == sizes   ? p.make_like(a, a.type, alike && a.place.buffer != b.place.buffer)
                         : b.sizes == sizes ? p.make_like(b, b.type)
                                            : p.make(ElementType::f32, sizes);
        p.give(0, y);
        if (y.count() == 0) return;
        const Rows rows(y, expanded_strides(a, sizes), expanded_strides(b, sizes));
        p.emit({a.place, b.place, y.place},
               [this, rows](void* const* at) { compute(rows, at[0], static_cast<const float*>(at[1]), at[2]); });
    }

private:
    static FloatOperation operation_of(const StepReader& r, const std::string& name) {
        if (name == "add") return FloatOperation::add;
        if (name == "subtract") return FloatOperation::subtract;
        if (name == "multiply") return FloatOperation::multiply;
        if (name == "divide") return FloatOperation::divide;
        r.fail("attribute 'operation' must be add, subtract, multiply or divide");
    }

    void compute(const Rows& rows, const void* a, const float* b, void* y) const {
        const float* x = static_cast<const float*>(a);
        float* out = static_cast<float*>(y);
        switch (operation_) {
            case FloatOperation::add: return each(rows, x, b, out, [](float u, float v) { return u + v; });
            case FloatOperation::subtract: return each(rows, x, b, out, [](float u, float v) { return u - v; });
            case FloatOperation::multiply: return each(rows, x, b, out, [](float u, float v) { return u * v; });
            case FloatOperation::divide: return each(rows, x, b, out, [](float u, float v) { return u / v; });
        }
    }

    template <class Function>
    static void each(const Rows& rows, const float* a, const float* b, float* y, Function f) {
        const int64_t a_step = rows.inner.a, b_step = rows.inner.b;
        rows.run([&](int64_t a_at, int64_t b_at, int64_t y_at, int64_t n) {
            const float *u = a + a_at, *v = b + b_at;
            float* out = y + y_at;
            if (a_step == 1 && b_step == 1) {
                for (int64_t i = 0; i < n; ++i) out[i] = f(u[i], v[i]);
            } else if (a_step == 1 && b_step == 0) {
                const float one = *v;
                for (int64_t i = 0; i < n; ++i) out[i] = f(u[i], one);
            } else {
                for (int64_t i = 0; i < n; ++i) out[i] = f(u[i * a_step], v[i * b_step]);
            }
        });
    }

    FloatOperation operation_;
    float number_ = 0;
};

// y = min(max(x, low), high), of which either may be missing.
class FloatClamp : public Step {
public:
    explicit FloatClamp(StepReader& r) {
        r.require_inputs(1);
        r.require_outputs(1);
        if (r.has("low")) low_ = static_cast<float>(r.number("low"));
        if (r.has("high")) high_ = static_cast<float>(r.number("high"));
    }

    void plan(Planner& p) const override {
        const Tensor x = p.dense(p.typed_input(0, ElementType::f32));
        const Tensor y = p.make_like(x, x.type, true);
        p.give(0, y);
        if (x.count() == 0) return;
        p.emit({x.place, y.place}, [n = x.count(), low = low_, high = high_](void* const* at) {
            const float* from = static_cast<const float*>(at[0]);
            float* to = static_cast<float*>(at[1]);
            parallel_for(n, kGrain, [&](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i) {
                    const float v = from[i] < low ? low : from[i];
                    to[i] = v > high ? high : v;
                }
            });
        });
    }

private:
    float low_ = -std::numeric_limits<float>::infinity(), high_ = std::numeric_limits<float>::infinity();
};

// y = sqrt(sum(x^2)) over the last axis, which stays with one element if keepdim. Summed in float64 and rounded once,
// so that it is the same on every CPU; PyTorch sums in float32 and is within a few units in the last place of it.
class FloatNorm : public Step {
public:
    explicit FloatNorm(StepReader& r) : keep_(r.flag("keepdim")) {
        r.require_inputs(1);
        r.require_outputs(1);
    }

    void plan(Planner& p) const override {
        const Tensor x = p.contiguous(p.typed_input(0, ElementType::f32));
        if (x.rank() < 1) throw PlanError("there is no axis to sum over");
        const int64_t length = x.sizes.back();
        Sizes sizes = x.sizes;
        sizes.pop_back();
        if (keep_) sizes.push_back(1);
        const Tensor y = p.make(ElementType::f32, sizes);
        p.give(0, y);
        if (y.count() == 0) return;
        p.emit({x.place, y.place}, [length, rows = y.count()](void* const* at) {
            const float* from = static_cast<const float*>(at[0]);
            float* to = static_cast<float*>(at[1]);
            parallel_for(rows, std::max<int64_t>(1, kGrain / std::max<int64_t>(length, 1)),
                         [&](int64_t begin, int64_t end) {
                             for (int64_t row = begin; row < end; ++row) {
                                 double sum = 0;
                                 for (const float* v = from + row * length; v < from + (row + 1) * length; ++v)
                                     sum += static_cast<double>(*v) * static_cast<double>(*v);
                                 to[row] = static_cast<float>(std::sqrt(sum));
                             }
                         });
        });
    }

private:
    bool keep_;
};

}  // namespace

void add_float_steps(StepTable& table) {
    table.add<FloatBinary>("float_binary");
    table.add<FloatClamp>("float_clamp");
    table.add<FloatNorm>("float_norm");
}

}  // namespace zeropoint
