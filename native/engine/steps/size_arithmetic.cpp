// Numbers that follow from sizes, computed once for each set of them, as Python does: whole ones stay whole.
#include "engine/step_table.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace zeropoint {
namespace {

using Value = std::variant<int64_t, double>;

constexpr int64_t kMostSize = int64_t{1} << 31;
constexpr double kMostWhole = 9007199254740992.0;  // 2^53

double real(const Value& v) {
    const int64_t* whole = std::get_if<int64_t>(&v);
    return whole != nullptr ? static_cast<double>(*whole) : std::get<double>(v);
}

Value whole(double v) {
    if (!(std::fabs(v) <= kMostWhole)) throw PlanError("a number is out of range");
    return static_cast<int64_t>(v);
}

Value divided(const Value& a, const Value& b, bool modulo) {
    if (real(b) == 0) throw PlanError("division by zero");
    const int64_t *m = std::get_if<int64_t>(&a), *n = std::get_if<int64_t>(&b);
    if (m == nullptr || n == nullptr) {
        const double quotient = std::floor(real(a) / real(b));
        return modulo ? real(a) - quotient * real(b) : quotient;
    }
    const int64_t quotient = *m / *n - (*m % *n != 0 && (*m < 0) != (*n < 0) ? 1 : 0);
    return modulo ? *m - quotient * *n : quotient;
}

Value power(const Value& a, const Value& b) {
    const int64_t *base = std::get_if<int64_t>(&a), *exponent = std::get_if<int64_t>(&b);
    if (base == nullptr || exponent == nullptr || *exponent < 0) return std::pow(real(a), real(b));
    return whole(std::pow(real(a), real(b)));
}

// Both operands as they are, if they are whole, else as reals.
template <class Combine>
Value combined(const Value& a, const Value& b, const Combine& combine) {
    const int64_t *m = std::get_if<int64_t>(&a), *n = std::get_if<int64_t>(&b);
    if (m != nullptr && n != nullptr) return combine(*m, *n);
    return combine(real(a), real(b));
}

struct Row {
    const char* name;
    size_t operands;
    Value (*compute)(const Value& a, const Value& b);
};

constexpr std::array<Row, 17> kRows{{
    {"add", 2,
     [](const Value& a, const Value& b) { return combined(a, b, [](auto m, auto n) -> Value { return m + n; }); }},
    {"subtract", 2,
     [](const Value& a, const Value& b) { return combined(a, b, [](auto m, auto n) -> Value { return m - n; }); }},
    {"multiply", 2,
     [](const Value& a, const Value& b) { return combined(a, b, [](auto m, auto n) -> Value { return m * n; }); }},
    {"maximum", 2,
     [](const Value& a, const Value& b) {
         return combined(a, b, [](auto m, auto n) -> Value { return std::max(m, n); });
     }},
    {"minimum", 2,
     [](const Value& a, const Value& b) {
         return combined(a, b, [](auto m, auto n) -> Value { return std::min(m, n); });
     }},
    {"divide", 2,
     [](const Value& a, const Value& b) -> Value {
         if (real(b) == 0) throw PlanError("division by zero");
         return real(a) / real(b);
     }},
    {"floor_divide", 2, [](const Value& a, const Value& b) { return divided(a, b, false); }},
    {"modulo", 2, [](const Value& a, const Value& b) { return divided(a, b, true); }},
    {"power", 2, power},
    {"negate", 1,
     [](const Value& a, const Value&) {
         return combined(Value(int64_t{0}), a, [](auto m, auto n) -> Value { return m - n; });
     }},
    {"absolute", 1,
     [](const Value& a, const Value&) { return combined(a, a, [](auto m, auto) -> Value { return m < 0 ? -m : m; }); }},
    {"float", 1, [](const Value& a, const Value&) -> Value { return real(a); }},
    {"sqrt", 1, [](const Value& a, const Value&) -> Value { return std::sqrt(real(a)); }},
    {"floor", 1, [](const Value& a, const Value&) { return whole(std::floor(real(a))); }},
    {"ceil", 1, [](const Value& a, const Value&) { return whole(std::ceil(real(a))); }},
    {"round", 1, [](const Value& a, const Value&) { return whole(std::nearbyint(real(a))); }},
    {"trunc", 1, [](const Value& a, const Value&) { return whole(std::trunc(real(a))); }},
}};

// Attributes: `operation`, a name of the rows above, and `operands`, numbers or values that are.
class Calculate : public StepOf<0, 1> {
public:
    explicit Calculate(StepReader& r) : StepOf(r), row_(find(r)), operands_(r.numbers("operands", 2)) {
        if (operands_.size() != row_.operands)
            r.fail("'" + std::string(row_.name) + "' takes " + std::to_string(row_.operands) + " numbers");
    }
    void plan(Planner& p) const override {
        std::array<Value, 2> given{};
        for (size_t i = 0; i < operands_.size(); ++i) {
            given[i] = p.number(operands_[i]);
            const int64_t* n = std::get_if<int64_t>(&given[i]);
            if (n != nullptr && (*n < -kMostSize || *n > kMostSize)) throw PlanError("a number is out of range");
        }
        const Value made = row_.compute(given[0], given[1]);
        if (const int64_t* n = std::get_if<int64_t>(&made)) return p.give(0, *n);
        p.give(0, std::get<double>(made));
    }

private:
    static const Row& find(StepReader& r) {
        const std::string name = r.text("operation");
        for (const Row& row : kRows)
            if (name == row.name) return row;
        r.fail("there is no operation '" + name + "'");
    }

    const Row& row_;
    std::vector<Number> operands_;
};

}  // namespace

void add_size_arithmetic_steps(StepTable& table) { table.add({{"calculate", made<Calculate>}}); }

}  // namespace zeropoint
