// What is not quantized: float32 arithmetic, other dtypes, tensors of known values. Each operation is rounded once, so
// that the bytes are those of PyTorch.
#include "engine/step_table.h"

#include "cpu/machine.h"
#include "cpu/threads.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

namespace zeropoint {
namespace {

constexpr int64_t kElements = worth_elements(4);  // worth a thread

struct FloatAxis {
    int64_t size, a, b, y;
};

// y = a o b of float32; one may be repeated, or be the attribute `number`.
template <class Operation>
class FloatBinary : public Step {
public:
    explicit FloatBinary(StepReader& r) : has_number_(r.has("number")) {
        r.require_inputs(has_number_ ? 1 : 2);
        r.require_outputs(1);
        if (!has_number_) return;
        number_ = static_cast<float>(r.number("number"));
        swapped_ = r.flag("swapped");  // number o a
    }

    void plan(Planner& p) const override {
        const Tensor& a = p.typed_input(0, ElementType::f32);
        const Tensor& b = has_number_ ? a : p.typed_input(1, ElementType::f32);
        const Sizes sizes = broadcast(a.sizes, b.sizes);
        const bool alike = a.sizes == b.sizes && a.strides == b.strides && a.is_dense();
        const Tensor y = a.sizes == sizes
                             ? p.make_like(a, a.type, alike && (has_number_ || a.place.buffer != b.place.buffer))
                         : b.sizes == sizes ? p.make_like(b, a.type)
                                            : p.make(a.type, sizes);
        p.give(0, y);
        if (y.count() == 0) return;
        std::vector<FloatAxis> axes = walk(expanded_strides(a, sizes), expanded_strides(b, sizes), y);
        const FloatAxis inner = axes.back();
        axes.pop_back();
        int64_t rows = 1;
        for (const FloatAxis& axis : axes) rows *= axis.size;
        p.emit({a.place, b.place, y.place}, [this, axes, inner, rows](void* const* at) {
            const float *x = static_cast<const float*>(at[0]), *w = static_cast<const float*>(at[1]);
            float* to = static_cast<float*>(at[2]);
            // One long row is shared, too.
            const int64_t pieces = rows == 1 ? (inner.size + kElements - 1) / kElements : 1;
            const int64_t length = (inner.size + pieces - 1) / pieces;
            parallel_for(rows * pieces, std::max<int64_t>(1, kElements / length), [&](int64_t begin, int64_t end) {
                for (int64_t task = begin; task < end; ++task) {
                    int64_t row = task / pieces, a_at = 0, b_at = 0, y_at = 0;
                    for (size_t i = axes.size(); i-- > 0; row /= axes[i].size) {
                        const int64_t index = row % axes[i].size;
                        a_at += index * axes[i].a;
                        b_at += index * axes[i].b;
                        y_at += index * axes[i].y;
                    }
                    const int64_t first = task % pieces * length, n = std::min(length, inner.size - first);
                    line(x + a_at + first * inner.a, w + b_at + first * inner.b, to + y_at + first * inner.y, n, inner);
                }
            });
        });
    }

private:
    // Axes in the order of y in memory, those that can be walked as one taken together; at least one.
    static std::vector<FloatAxis> walk(const Sizes& a, const Sizes& b, const Tensor& y) {
        std::vector<FloatAxis> axes;
        for (const int64_t d : y.memory_order()) {
            const size_t i = static_cast<size_t>(d);
            const FloatAxis next{y.sizes[i], a[i], b[i], y.strides[i]};
            if (next.size == 1) continue;
            if (!axes.empty() && axes.back().a == next.size * next.a && axes.back().b == next.size * next.b &&
                axes.back().y == next.size * next.y)
                axes.back() = {axes.back().size * next.size, next.a, next.b, next.y};
            else
                axes.push_back(next);
        }
        if (axes.empty()) axes.push_back({1, 1, 1, 1});
        return axes;
    }

    void line(const float* a, const float* b, float* y, int64_t n, const FloatAxis& step) const {
        if (has_number_ && step.a == 1 && step.y == 1) {
            const float number = number_;
            if (swapped_)
                for (int64_t i = 0; i < n; ++i) y[i] = Operation::of(number, a[i]);
            else
                for (int64_t i = 0; i < n; ++i) y[i] = Operation::of(a[i], number);
        } else if (step.a == 1 && step.b == 1 && step.y == 1 && !has_number_) {
            for (int64_t i = 0; i < n; ++i) y[i] = Operation::of(a[i], b[i]);
        } else {
            for (int64_t i = 0; i < n; ++i) {
                const float left = a[i * step.a], right = has_number_ ? number_ : b[i * step.b];
                y[i * step.y] = has_number_ && swapped_ ? Operation::of(right, left) : Operation::of(left, right);
            }
        }
    }

    bool has_number_, swapped_ = false;
    float number_ = 0;
};

struct Plus {
    static float of(float a, float b) { return a + b; }
};
struct Minus {
    static float of(float a, float b) { return a - b; }
};
struct Times {
    static float of(float a, float b) { return a * b; }
};
struct Over {
    static float of(float a, float b) { return a / b; }
};

// Another dtype: numbers to float32, integers or bools. Floats lose what is behind the point; what does not fit becomes
// the least integer, as x86 has it.
class Convert : public OneInput {
public:
    explicit Convert(StepReader& r) : OneInput(r), type_(r.type("dtype")) {}

    void plan(Planner& p) const override {
        const Tensor x = p.dense(p.input(0));
        if (x.type == type_) return p.give(0, x);
        const Tensor y = p.make_like(x, type_);
        p.give(0, y);
        const int64_t n = x.count();
        switch (type_) {
            case ElementType::f32: return from<float>(p, x, y, n);
            case ElementType::s64: return from<int64_t>(p, x, y, n);
            case ElementType::s32: return from<int32_t>(p, x, y, n);
            case ElementType::boolean: return from<bool>(p, x, y, n);
            default: refuse(x);
        }
    }

private:
    [[noreturn]] void refuse(const Tensor& x) const {
        throw PlanError(std::string("there is no way from ") + name_of(x.type) + " to " + name_of(type_));
    }
    template <class To>
    void from(Planner& p, const Tensor& x, const Tensor& y, int64_t n) const {
        switch (x.type) {
            case ElementType::u8:
            case ElementType::boolean: return emit<uint8_t, To>(p, x, y, n);
            case ElementType::s8: return emit<int8_t, To>(p, x, y, n);
            case ElementType::s16: return emit<int16_t, To>(p, x, y, n);
            case ElementType::s32: return emit<int32_t, To>(p, x, y, n);
            case ElementType::s64: return emit<int64_t, To>(p, x, y, n);
            case ElementType::f32: return emit<float, To>(p, x, y, n);
            default: refuse(x);
        }
    }
    template <class From, class To>
    static To converted(From value) {
        if constexpr (std::is_same_v<To, bool>) {
            return value != From{};
        } else if constexpr (std::is_same_v<From, float> && std::is_integral_v<To>) {
            constexpr float kEnd = -static_cast<float>(std::numeric_limits<To>::min());
            return value >= -kEnd && value < kEnd ? static_cast<To>(value) : std::numeric_limits<To>::min();
        } else {
            return static_cast<To>(value);
        }
    }
    template <class From, class To>
    void emit(Planner& p, const Tensor& x, const Tensor& y, int64_t n) const {
        if (n == 0) return;
        p.emit({x.place, y.place}, [n](void* const* at) {
            const From* from = static_cast<const From*>(at[0]);
            To* to = static_cast<To*>(at[1]);
            for (int64_t i = 0; i < n; ++i) to[i] = converted<From, To>(from[i]);
        });
    }

    ElementType type_;
};

// first, first + step, ... `count` int64 numbers.
class Range : public StepOf<0, 1> {
public:
    explicit Range(StepReader& r)
        : StepOf(r),
          first_(r.size("first")),
          step_(r.size("step")),
          count_(r.size("count")) {}

    void plan(Planner& p) const override {
        constexpr int64_t kMost = int64_t{1} << 40, kMostStep = int64_t{1} << 20;
        const int64_t first = p.integer(first_), step = p.integer(step_),
                      count = std::max<int64_t>(p.integer(count_), 0);
        if (first < -kMost || first > kMost || step < -kMostStep || step > kMostStep || count > kMost)
            throw PlanError("out of range");
        const Tensor y = p.make(ElementType::s64, {count});
        p.give(0, y);
        if (count == 0) return;
        p.emit({y.place}, [=](void* const* at) {
            int64_t* to = static_cast<int64_t*>(at[0]);
            for (int64_t i = 0; i < count; ++i) to[i] = first + i * step;
        });
    }

private:
    Integer first_, step_, count_;
};

// One value everywhere.
class Full : public StepOf<0, 1> {
public:
    explicit Full(StepReader& r)
        : StepOf(r),
          shape_(r.sizes("shape")),
          type_(r.type("dtype")),
          value_(r.number("value")) {
        if (!is_within(type_, value_)) r.fail("attribute 'value' is out of range for the dtype");
    }

    void plan(Planner& p) const override {
        const Tensor y = p.make(type_, p.integers(shape_));
        p.give(0, y);
        if (y.count() == 0) return;
        switch (type_) {
            case ElementType::f32: return fill<float>(p, y);
            case ElementType::s64: return fill<int64_t>(p, y);
            case ElementType::s32: return fill<int32_t>(p, y);
            case ElementType::s16: return fill<int16_t>(p, y);
            case ElementType::s8: return fill<int8_t>(p, y);
            default: return fill<uint8_t>(p, y);
        }
    }

private:
    static bool is_within(ElementType type, double value) {
        const auto fits = [&](double low, double high) {
            return value >= low && value <= high && value == std::floor(value);
        };
        switch (type) {
            case ElementType::f32: return true;
            case ElementType::s64: return std::fabs(value) < 9e15;
            case ElementType::s32: return fits(-2147483648.0, 2147483647.0);
            case ElementType::s16: return fits(-32768.0, 32767.0);
            case ElementType::s8: return fits(-128.0, 127.0);
            case ElementType::u8: return fits(0.0, 255.0);
            case ElementType::boolean: return fits(0.0, 1.0);
            default: return false;
        }
    }
    template <class T>
    void fill(Planner& p, const Tensor& y) const {
        p.emit({y.place}, [value = static_cast<T>(value_), n = y.count()](void* const* at) {
            std::fill_n(static_cast<T*>(at[0]), n, value);
        });
    }

    std::vector<Integer> shape_;
    ElementType type_;
    double value_;
};

// Sums or products along an axis up to each element: of float32 in float64, of int64 as they are.
template <bool product>
class Cumulative : public OneInput {
public:
    explicit Cumulative(StepReader& r) : OneInput(r), axis_(r.integer("axis", -8, 7)) {}

    void plan(Planner& p) const override {
        const Tensor x = p.contiguous(p.input(0));
        const int64_t axis = x.rank() == 0 ? 0 : wrapped_axis(axis_, x.rank());
        const Tensor y = p.make(x.type, x.sizes);
        p.give(0, y);
        if (x.type != ElementType::f32 && x.type != ElementType::s64)
            throw PlanError(std::string("there are no running sums or products of ") + name_of(x.type));
        if (y.count() == 0) return;
        const int64_t length = x.rank() == 0 ? 1 : x.size(axis);
        const int64_t inner = x.rank() == 0 ? 1 : count_of({x.sizes.begin() + axis + 1, x.sizes.end()});
        p.emit({x.place, y.place}, [=, type = x.type, lines = y.count() / length](void* const* at) {
            for (int64_t line = 0; line < lines; ++line) {
                const int64_t first = line / inner * length * inner + line % inner;
                if (type == ElementType::f32)
                    follow<float, double>(at, first, length, inner);
                else
                    follow<int64_t, uint64_t>(at, first, length, inner);
            }
        });
    }

private:
    template <class T, class All>
    static void follow(void* const* at, int64_t first, int64_t length, int64_t step) {
        const T* from = static_cast<const T*>(at[0]) + first;
        T* to = static_cast<T*>(at[1]) + first;
        All all = product ? 1 : 0;
        for (int64_t i = 0; i < length * step; i += step) {
            if constexpr (product)
                all *= static_cast<All>(from[i]);
            else
                all += static_cast<All>(from[i]);
            to[i] = static_cast<T>(all);
        }
    }

    int64_t axis_;
};

// The greatest value along an axis up to each element, or the least, of float32 or int64, and where it was (int64): the
// last of equal ones. NaN stays.
class CumulativeExtreme : public StepOf<1, 2> {
public:
    explicit CumulativeExtreme(StepReader& r)
        : StepOf(r),
          axis_(r.integer("axis", -8, 7)),
          largest_(r.flag("largest")) {}

    void plan(Planner& p) const override {
        const Tensor x = p.contiguous(p.input(0));
        if (x.type != ElementType::f32 && x.type != ElementType::s64)
            throw PlanError(std::string("there are no extremes of ") + name_of(x.type));
        const int64_t axis = x.rank() == 0 ? 0 : wrapped_axis(axis_, x.rank());
        const Tensor y = p.make(x.type, x.sizes), where = p.make(ElementType::s64, x.sizes);
        p.give(0, y);
        p.give(1, where);
        if (y.count() == 0) return;
        const int64_t length = x.rank() == 0 ? 1 : x.size(axis);
        const int64_t inner = x.rank() == 0 ? 1 : count_of({x.sizes.begin() + axis + 1, x.sizes.end()});
        p.emit({x.place, y.place, where.place},
               [=, type = x.type, largest = largest_, lines = y.count() / length](void* const* at) {
                   for (int64_t line = 0; line < lines; ++line) {
                       const int64_t first = line / inner * length * inner + line % inner;
                       if (type == ElementType::f32)
                           follow<float>(at, first, length, inner, largest);
                       else
                           follow<int64_t>(at, first, length, inner, largest);
                   }
               });
    }

private:
    template <class T>
    static void follow(void* const* at, int64_t first, int64_t length, int64_t step, bool largest) {
        const T* from = static_cast<const T*>(at[0]) + first;
        T* to = static_cast<T*>(at[1]) + first;
        int64_t* where = static_cast<int64_t*>(at[2]) + first;
        T best = from[0];
        int64_t place = 0;
        for (int64_t i = 0; i < length; ++i) {
            const T value = from[i * step];
            if (value != value || (best == best && (largest ? value >= best : value <= best))) {
                best = value;
                place = i;
            }
            to[i * step] = best;
            where[i * step] = place;
        }
    }

    int64_t axis_;
    bool largest_;
};

// y = x - floor(x / number) * number, of float32 or int64; it has the sign of the number.
class Remainder : public OneInput {
public:
    explicit Remainder(StepReader& r) : OneInput(r), number_(r.number("number")) {}

    void plan(Planner& p) const override {
        const Tensor x = p.dense(p.input(0));
        const bool whole = x.type == ElementType::s64;
        if (!whole && x.type != ElementType::f32)
            throw PlanError(std::string("there is no remainder of ") + name_of(x.type));
        if (whole && (number_ == 0 || !(std::fabs(number_) < 9e15) || number_ != std::floor(number_)))
            throw PlanError("integers cannot be divided by " + std::to_string(number_));
        const Tensor y = p.make_like(x, x.type, true);
        p.give(0, y);
        if (y.count() == 0) return;
        p.emit({x.place, y.place}, [n = y.count(), whole, number = number_](void* const* at) {
            const auto each = [&](auto by, auto rest) {
                using T = decltype(by);
                const T* from = static_cast<const T*>(at[0]);
                T* to = static_cast<T*>(at[1]);
                for (int64_t i = 0; i < n; ++i) {
                    const T left = rest(from[i], by);
                    to[i] = left != 0 && (left < 0) != (by < 0) ? left + by : left;
                }
            };
            if (whole)
                each(static_cast<int64_t>(number), [](int64_t a, int64_t b) { return b == -1 ? 0 : a % b; });
            else
                each(static_cast<float>(number), [](float a, float b) { return std::fmod(a, b); });
        });
    }

private:
    double number_;
};

}  // namespace

void add_unquantized_steps(StepTable& table) {
    table.add({{"convert", made<Convert>},
               {"cumulative_extreme", made<CumulativeExtreme>},
               {"remainder", made<Remainder>},
               {"range", made<Range>},
               {"full", made<Full>},
               {"float_add", made<FloatBinary<Plus>>},
               {"float_subtract", made<FloatBinary<Minus>>},
               {"float_multiply", made<FloatBinary<Times>>},
               {"float_divide", made<FloatBinary<Over>>},
               {"cumulative_sum", made<Cumulative<false>>},
               {"cumulative_product", made<Cumulative<true>>}});
}

}  // namespace zeropoint
