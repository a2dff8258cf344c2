// Expressions over tensors that broadcast: one step for a chain of operators that work element by element.
#include "operators/map.h"

#include "engine/step_table.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace zeropoint {
namespace {

constexpr size_t kMostValues = 192, kMostOperands = 64;

MapType map_type(StepReader& r, const std::string& name) {
    switch (type_from_name(name)) {
        case ElementType::boolean: return MapType::boolean;
        case ElementType::u8: return MapType::u8;
        case ElementType::s8: return MapType::s8;
        case ElementType::s32: return MapType::s32;
        case ElementType::s64: return MapType::s64;
        case ElementType::f32: return MapType::f32;
        default: r.fail("there are no expressions of " + name);
    }
}

ElementType element_type(MapType type) {
    constexpr std::array kTypes = {ElementType::boolean, ElementType::u8,  ElementType::s8,
                                   ElementType::s32,     ElementType::s64, ElementType::f32};
    return kTypes[static_cast<size_t>(type)];
}

// The values that `code` lists, behind the operands. One instruction is a list: an operation, the type of its operands,
// and the numbers of values before it; ["convert", type of the result, value]; ["number", type, number]; or ["size",
// type, i], the i-th of the attribute `sizes`.
class CodeReader {
public:
    CodeReader(StepReader& r, size_t sizes) : r_(r), sizes_(sizes) {}

    std::vector<MapValue> read(std::vector<int>& size_of) {
        const Json::List &types = r_.list("types"), &code = r_.list("code");
        if (types.size() != r_.inputs().size() || types.empty() || types.size() > kMostOperands)
            r_.fail("attribute 'types' must have the type of each input, of " + std::to_string(kMostOperands) +
                    " at most");
        if (code.empty() || code.size() > kMostValues)
            r_.fail("attribute 'code' must have instructions, " + std::to_string(kMostValues) + " at most");
        for (const Json& type : types) {
            values_.emplace_back();
            values_.back().type = map_type(r_, text(type));
        }
        size_of.assign(types.size() + code.size(), -1);
        for (const Json& instruction : code) {
            const Json::List* list = instruction.list();
            if (list == nullptr || list->size() < 3) r_.fail("an instruction must be a list of at least three");
            values_.push_back(made_by(*list, size_of[values_.size()]));
        }
        const MapValue::Kind last = values_.back().kind;
        if (last == MapValue::Kind::number) r_.fail("the last instruction must compute something");
        return std::move(values_);
    }

private:
    const std::string& text(const Json& json) {
        if (json.text() == nullptr) r_.fail("operations and types must be words");
        return *json.text();
    }

    int value(const Json& json) {
        const int64_t* index = json.integer();
        if (index == nullptr || *index < 0 || *index >= static_cast<int64_t>(values_.size()))
            r_.fail("an instruction must read values before it");
        return static_cast<int>(*index);
    }

    MapType type_at(int index) const { return values_[static_cast<size_t>(index)].type; }

    MapValue made_by(const Json::List& list, int& size) {
        const std::string& name = text(list[0]);
        MapValue v;
        v.type = v.from = map_type(r_, text(list[1]));
        if (name == "number" || name == "size" || name == "convert") {
            if (list.size() != 3) r_.fail("'" + name + "' takes a type and one thing more");
            if (name == "number") return number(v, list[2]);
            if (name == "size") return size_number(v, list[2], size);
            v.kind = MapValue::Kind::conversion;
            v.a = value(list[2]);
            v.from = type_at(v.a);
            return v;
        }
        return operation(v, name, list);
    }

    MapValue operation(MapValue v, const std::string& name, const Json::List& list) {
        size_t operands = 1;
        if (const auto function = float_function_named(name)) {
            v.kind = MapValue::Kind::function;
            v.function = *function;
            if (v.type != MapType::f32) r_.fail("'" + name + "' is of float32 only");
        } else {
            const auto found = map_operation(name);
            if (!found) r_.fail("there is no operation '" + name + "'");
            v.kind = MapValue::Kind::operation;
            v.operation = *found;
            operands = static_cast<size_t>(operands_of(*found));
            if (!takes(*found, v.from)) r_.fail("there is no '" + name + "' of " + text(list[1]));
            if (gives_bool(*found)) v.type = MapType::boolean;
        }
        if (list.size() != 2 + operands)
            r_.fail("'" + name + "' takes " + std::to_string(operands) + " values, not " +
                    std::to_string(list.size() - 2));
        int* const places[] = {&v.a, &v.b, &v.c};
        for (size_t i = 0; i < operands; ++i) {
            *places[i] = value(list[2 + i]);
            const bool is_choice = operands == 3 && i == 0;
            if (type_at(*places[i]) != (is_choice ? MapType::boolean : v.from))
                r_.fail("a value that '" + name + "' takes is of another type");
        }
        return v;
    }

    MapValue number(MapValue v, const Json& json) {
        v.kind = MapValue::Kind::number;
        if (v.type == MapType::f32) {
            double given = 0;
            if (!json.number(given)) given = infinite(text(json));
            v.real = static_cast<float>(given);
        } else if (v.type == MapType::boolean) {
            if (json.boolean() == nullptr) r_.fail("a number of type bool must be true or false");
            v.integer = *json.boolean() ? 1 : 0;
        } else {
            if (json.integer() == nullptr) r_.fail("a number of an integer type must be an integer");
            v.integer = *json.integer();
        }
        return v;
    }

    double infinite(const std::string& word) {
        if (word == "inf") return std::numeric_limits<double>::infinity();
        if (word == "-inf") return -std::numeric_limits<double>::infinity();
        if (word != "nan") r_.fail("a number must be one, or 'inf', '-inf' or 'nan'");
        return std::numeric_limits<double>::quiet_NaN();
    }

    MapValue size_number(MapValue v, const Json& json, int& size) {
        const int64_t* index = json.integer();
        if (index == nullptr || *index < 0 || *index >= static_cast<int64_t>(sizes_))
            r_.fail("there is no such number among 'sizes'");
        size = static_cast<int>(*index);
        v.kind = MapValue::Kind::number;
        return v;
    }

    StepReader& r_;
    size_t sizes_;
    std::vector<MapValue> values_;
};

class MapStep : public Step {
public:
    explicit MapStep(StepReader& r)
        : sizes_(r.has("sizes") ? r.numbers("sizes", kMostOperands) : std::vector<Number>{}),
          map_(read(r)) {
        r.require_outputs(1);
    }

    void plan(Planner& p) const override {
        p.runs("map");
        const size_t operands = p.inputs();
        Sizes sizes;
        for (size_t i = 0; i < operands; ++i)
            sizes = broadcast(sizes, p.typed_input(i, element_type(map_.values()[i].type)).sizes);
        const Tensor y = result(p, sizes);
        p.give(0, y);
        if (y.count() == 0) return;
        Map::Sized sized;
        sized.count = y.count();
        std::vector<Place> places;
        for (size_t i = 0; i < operands; ++i) {
            sized.operands.push_back(walked(p.input(i), y));
            places.push_back(p.input(i).place);
        }
        if (!sizes_.empty()) sized.numbers = numbers(p);
        places.push_back(y.place);
        p.needs_memory(0, map_.thread_bytes());
        p.emit(std::move(places), [this, sized](void* const* at) { map_.run(sized, at); });
    }

private:
    std::vector<MapValue> read(StepReader& r) { return CodeReader(r, sizes_.size()).read(size_of_); }

    // As the first input that is as large lies in memory; in its place, if no other input is there, too.
    Tensor result(Planner& p, const Sizes& sizes) const {
        const ElementType type = element_type(map_.values().back().type);
        size_t like = 0;
        while (like < p.inputs() && p.input(like).sizes != sizes) ++like;
        if (like == p.inputs()) return p.make(type, sizes);
        const Tensor y = p.make_like(p.input(like), type);
        for (size_t i = 0; i < p.inputs(); ++i) {
            const Tensor& x = p.input(i);
            bool alone = x.sizes == y.sizes && x.strides == y.strides && bytes_of(x.type) == bytes_of(type);
            for (size_t k = 0; k < p.inputs(); ++k)
                alone = alone && (k == i || p.input(k).place.buffer != x.place.buffer);
            if (alone) {
                p.take_over(y, x);
                break;
            }
        }
        return y;
    }

    // The axes of x in the order in which y lies in memory, those that can be walked as one taken together.
    static MapOperand walked(const Tensor& x, const Tensor& y) {
        MapOperand operand;
        operand.element = bytes_of(x.type);
        const Sizes strides = expanded_strides(x, y.sizes);
        for (const int64_t axis : y.memory_order()) {
            const size_t i = static_cast<size_t>(axis);
            const MapOperand::Axis next{y.sizes[i], strides[i]};
            if (next.size == 1) continue;
            if (!operand.axes.empty() && operand.axes.back().step == next.size * next.step)
                operand.axes.back() = {operand.axes.back().size * next.size, next.step};
            else
                operand.axes.push_back(next);
        }
        return operand;
    }

    // The numbers of the expression, for these sizes.
    std::vector<MapValue> numbers(Planner& p) const {
        std::vector<MapValue> values = map_.values();
        for (size_t i = 0; i < values.size(); ++i)
            if (size_of_[i] >= 0) {
                const auto number = p.number(sizes_[static_cast<size_t>(size_of_[i])]);
                const int64_t* whole = std::get_if<int64_t>(&number);
                if (whole == nullptr && values[i].type != MapType::f32)
                    throw PlanError("a size that is needed is no whole number");
                values[i].integer = whole == nullptr ? 0 : *whole;
                values[i].real =
                    whole == nullptr ? static_cast<float>(std::get<double>(number)) : static_cast<float>(*whole);
            }
        return values;
    }

    std::vector<Number> sizes_;
    std::vector<int> size_of_;  // by value: which of `sizes` it is, or -1
    Map map_;
};

}  // namespace

void add_map_steps(StepTable& table) { table.add({{"map", made<MapStep>}}); }

}  // namespace zeropoint
