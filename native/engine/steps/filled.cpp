// Tensors that are made from numbers.
#include "engine/step_table.h"

#include <algorithm>

namespace zeropoint {
namespace {

// `value` everywhere: of float32 any number, of other types an integer that they have.
class Full : public Step {
public:
    explicit Full(StepReader& r) : type_(r.type("dtype")), shape_(r.sizes("shape")) {
        r.require_inputs(0);
        r.require_outputs(1);
        switch (type_) {
            case ElementType::f32: number_ = static_cast<float>(r.number("value")); break;
            case ElementType::boolean: integer_ = r.integer("value", 0, 1); break;
            case ElementType::u8: integer_ = r.integer("value", 0, 255); break;
            case ElementType::s8: integer_ = r.integer("value", -128, 127); break;
            case ElementType::s32: integer_ = integer_of<int32_t>(r); break;
            case ElementType::s64: integer_ = integer_of<int64_t>(r); break;
            default: r.fail(std::string("there is no step for ") + name_of(type_));
        }
    }

    void plan(Planner& p) const override {
        const Tensor y = p.make(type_, p.integers(shape_));
        p.give(0, y);
        if (y.count() == 0) return;
        p.emit({y.place}, [this, n = y.count()](void* const* at) {
            switch (type_) {
                case ElementType::f32: return fill(at[0], n, number_);
                case ElementType::s32: return fill(at[0], n, static_cast<int32_t>(integer_));
                case ElementType::s64: return fill(at[0], n, integer_);
                default: return fill(at[0], n, static_cast<uint8_t>(integer_));
            }
        });
    }

private:
    template <class T>
    static int64_t integer_of(StepReader& r) {
        return r.integer("value", std::numeric_limits<T>::min(), std::numeric_limits<T>::max());
    }
    template <class T>
    static void fill(void* y, int64_t n, T value) {
        std::fill_n(static_cast<T*>(y), n, value);
    }

    ElementType type_;
    std::vector<Integer> shape_;
    float number_ = 0;
    int64_t integer_ = 0;
};

// begin, begin + step, ... below end, int64.
class Arange : public Step {
public:
    explicit Arange(StepReader& r) : begin_(r.size("begin")), end_(r.size("end")), step_(r.size("step")) {
        r.require_inputs(0);
        r.require_outputs(1);
    }

    void plan(Planner& p) const override {
        const int64_t begin = p.integer(begin_), end = p.integer(end_), step = p.integer(step_);
        for (const int64_t n : {begin, end, step})
            if (n < -kMostElements || n > kMostElements) throw PlanError("a number is out of range");
        if (step < 1) throw PlanError("the step must be positive, it is " + std::to_string(step));
        const Tensor y = p.make(ElementType::s64, {end > begin ? (end - begin + step - 1) / step : 0});
        p.give(0, y);
        if (y.count() == 0) return;
        p.emit({y.place}, [begin, step, n = y.count()](void* const* at) {
            for (int64_t i = 0; i < n; ++i) static_cast<int64_t*>(at[0])[i] = begin + i * step;
        });
    }

private:
    Integer begin_, end_, step_;
};

}  // namespace

void add_filled_steps(StepTable& table) {
    table.add<Full>("full");
    table.add<Arange>("arange");
}

}  // namespace zeropoint
