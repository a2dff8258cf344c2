// Expressions over tensors, element by element, in blocks that stay in the cache. See kernels/map/ for the operations.
#pragma once

#include "kernels/float_function/float_function.h"
#include "kernels/map/map.h"

#include <optional>
#include <string>
#include <vector>

namespace zeropoint {

int64_t bytes_of(MapType type);
std::optional<MapOperation> map_operation(const std::string& name);
// Those that float_function has: "tanh", "sigmoid", "silu", "gelu", "gelu_tanh".
std::optional<FloatFunction> float_function_named(const std::string& name);
// How many values an operation takes, and what it gives.
int operands_of(MapOperation operation);
bool gives_bool(MapOperation operation);
// Whether values of that type can be its operands.
bool takes(MapOperation operation, MapType type);

// y[i] = operation(a[i], b[i]) of float32; b is null for a function of one number. y may be a or b.
void float_map(MapOperation operation, const float* a, const float* b, float* y, int64_t count);

// One value of an expression: an operand, a number, or what an instruction makes of values before it.
struct MapValue {
    enum class Kind { operand, number, operation, conversion, function };
    Kind kind = Kind::operand;
    MapType type = MapType::f32;                 // of the value
    MapOperation operation = MapOperation::add;  // with operands of type `from`
    FloatFunction function = FloatFunction::tanh;
    MapType from = MapType::f32;
    int a = -1, b = -1, c = -1;  // values before it
    int64_t integer = 0;         // of a number: if it is an integer or bool
    float real = 0;              // if it is a float
};

// An operand in the order in which the result is written: `axes`, outermost first, with steps in elements.
struct MapOperand {
    struct Axis {
        int64_t size, step;
    };
    std::vector<Axis> axes;
    int64_t element = 4;  // bytes

    // Whether element i is the i-th in memory.
    bool is_straight() const { return axes.empty() || (axes.size() == 1 && axes[0].step == 1); }
};

// The last value of an expression, for `count` elements.
class Map {
public:
    // The first values are the operands. Every value but the last one is read.
    explicit Map(std::vector<MapValue> values);
    const std::vector<MapValue>& values() const { return values_; }

    struct Sized {
        std::vector<MapOperand> operands;
        std::vector<MapValue> numbers;  // in place of those of the expression; by number of the value
        int64_t count = 0;
    };
    // `at`: the operands' addresses, and that of the result, which is written in one piece. Throws
    // std::invalid_argument if an integer is divided by zero.
    void run(const Sized& sized, void* const* at) const;
    // Memory that each thread needs.
    double thread_bytes() const;

private:
    bool block(const Sized& sized, void* const* at, int64_t begin, int64_t n, uint8_t* memory) const;
    void fill_numbers(const Sized& sized, uint8_t* memory) const;

    std::vector<MapValue> values_;
    std::vector<int>
        places_;  // of the values in the memory of a thread, in blocks; operands that are straight need none
    int blocks_ = 0;
    size_t operands_ = 0;
};

}  // namespace zeropoint
