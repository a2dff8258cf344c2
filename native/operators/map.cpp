#include "operators/map.h"

#include "cpu/machine.h"
#include "cpu/memory.h"
#include "cpu/threads.h"
#include "kernels/registry.h"
#include "operators/scratch.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <stdexcept>

namespace zeropoint {
namespace {

constexpr int64_t kBlock = 1024;                  // elements
constexpr int64_t kElements = worth_elements(4);  // worth a thread
constexpr int64_t kWidest = 8;                    // bytes of an element

struct OperationRow {
    const char* name;
    int operands;
    bool gives_bool;
};
constexpr std::array kOperations = {
#define OPERATION(name, operands, types, result) OperationRow{#name, operands, std::string_view(#result) == "boolean"},
#include "kernels/map/operations.inc"
#undef OPERATION
};

struct FunctionRow {
    const char* name;
    FloatFunction function;
};
constexpr FunctionRow kFunctions[] = {{"gelu", FloatFunction::gelu},
                                      {"gelu_tanh", FloatFunction::gelu_tanh},
                                      {"tanh", FloatFunction::tanh},
                                      {"sigmoid", FloatFunction::sigmoid},
                                      {"silu", FloatFunction::silu}};

// Elements begin .. begin + n of an operand, one behind the other.
template <class T>
void load(const MapOperand& operand, const T* x, int64_t begin, int64_t n, T* to) {
    const std::vector<MapOperand::Axis>& axes = operand.axes;
    std::array<int64_t, 16> index{};
    int64_t rest = begin, place = 0;
    for (size_t i = axes.size(); i-- > 0; rest /= axes[i].size) {
        index[i] = rest % axes[i].size;
        place += index[i] * axes[i].step;
    }
    const MapOperand::Axis inner = axes.back();
    const size_t last = axes.size() - 1;
    while (n > 0) {
        const int64_t run = std::min(n, inner.size - index[last]);
        if (inner.step == 1)
            std::memcpy(to, x + place, static_cast<size_t>(run) * sizeof(T));
        else if (inner.step == 0)
            std::fill_n(to, run, x[place]);
        else
            for (int64_t i = 0; i < run; ++i) to[i] = x[place + i * inner.step];
        to += run;
        n -= run;
        place -= index[last] * inner.step;
        index[last] = 0;
        for (size_t i = last; i-- > 0;) {  // to the next line
            place += axes[i].step;
            if (++index[i] < axes[i].size) break;
            place -= axes[i].size * axes[i].step;
            index[i] = 0;
        }
    }
}

void load(const MapOperand& operand, const void* x, int64_t begin, int64_t n, void* to) {
    switch (operand.element) {
        case 1: return load(operand, static_cast<const uint8_t*>(x), begin, n, static_cast<uint8_t*>(to));
        case 4: return load(operand, static_cast<const uint32_t*>(x), begin, n, static_cast<uint32_t*>(to));
        default: return load(operand, static_cast<const uint64_t*>(x), begin, n, static_cast<uint64_t*>(to));
    }
}

template <class T>
void fill(void* to, T value) {
    std::fill_n(static_cast<T*>(to), kBlock, value);
}

void fill_number(const MapValue& v, void* to) {
    switch (v.type) {
        case MapType::boolean: return fill<uint8_t>(to, v.integer != 0);
        case MapType::u8: return fill(to, static_cast<uint8_t>(v.integer));
        case MapType::s8: return fill(to, static_cast<int8_t>(v.integer));
        case MapType::s32: return fill(to, static_cast<int32_t>(v.integer));
        case MapType::s64: return fill(to, v.integer);
        case MapType::f32: return fill(to, v.real);
    }
}

}  // namespace

int64_t bytes_of(MapType type) {
    constexpr int64_t kBytes[kMapTypes] = {1, 1, 1, 4, 8, 4};
    return kBytes[static_cast<int>(type)];
}

std::optional<MapOperation> map_operation(const std::string& name) {
    for (size_t i = 0; i < kOperations.size(); ++i)
        if (name == kOperations[i].name) return static_cast<MapOperation>(i);
    return std::nullopt;
}

std::optional<FloatFunction> float_function_named(const std::string& name) {
    for (const FunctionRow& row : kFunctions)
        if (name == row.name) return row.function;
    return std::nullopt;
}

int operands_of(MapOperation operation) { return kOperations[static_cast<size_t>(operation)].operands; }
bool gives_bool(MapOperation operation) { return kOperations[static_cast<size_t>(operation)].gives_bool; }
bool takes(MapOperation operation, MapType type) { return kernels().map().operation(operation, type) != nullptr; }

void float_map(MapOperation operation, const float* a, const float* b, float* y, int64_t count) {
    if (y != a && y != b) prepare_output(y, static_cast<size_t>(count) * sizeof(float));
    const MapLoop loop = kernels().map().operation(operation, MapType::f32);
    if (loop == nullptr || gives_bool(operation) || operands_of(operation) != (b == nullptr ? 1 : 2))
        throw std::invalid_argument("float_map: there is no such function of float32");
    parallel_for(count, kElements, [&](int64_t begin, int64_t end) {
        loop(a + begin, b == nullptr ? nullptr : b + begin, nullptr, y + begin, end - begin);
    });
}

Map::Map(std::vector<MapValue> values) : values_(std::move(values)), places_(values_.size(), -1) {
    std::vector<size_t> last(values_.size(), 0);
    for (size_t i = 0; i < values_.size(); ++i) {
        if (values_[i].kind == MapValue::Kind::operand) ++operands_;
        for (const int read : {values_[i].a, values_[i].b, values_[i].c})
            if (read >= 0) last[static_cast<size_t>(read)] = i;
    }
    // Operands and numbers have places of their own; what instructions make takes the place of what nothing reads
    // later.
    std::vector<int> free;
    for (size_t i = 0; i < values_.size(); ++i) {
        const bool is_made = values_[i].kind != MapValue::Kind::operand && values_[i].kind != MapValue::Kind::number;
        if (is_made && i + 1 == values_.size()) break;  // written to the result
        if (is_made && !free.empty()) {
            places_[i] = free.back();
            free.pop_back();
        } else {
            places_[i] = blocks_++;
        }
        if (!is_made) continue;
        std::array<int, 3> read = {values_[i].a, values_[i].b, values_[i].c};
        std::sort(read.begin(), read.end());
        for (size_t k = 0; k < read.size(); ++k) {
            if (read[k] < 0 || (k > 0 && read[k] == read[k - 1])) continue;
            const MapValue& v = values_[static_cast<size_t>(read[k])];
            if (v.kind != MapValue::Kind::number && last[static_cast<size_t>(read[k])] == i)
                free.push_back(places_[static_cast<size_t>(read[k])]);
        }
    }
}

double Map::thread_bytes() const { return static_cast<double>(blocks_) * kBlock * kWidest; }

void Map::fill_numbers(const Sized& sized, uint8_t* memory) const {
    for (size_t i = 0; i < values_.size(); ++i)
        if (values_[i].kind == MapValue::Kind::number)
            fill_number(sized.numbers.empty() ? values_[i] : sized.numbers[i],
                        memory + static_cast<int64_t>(places_[i]) * kBlock * kWidest);
}

bool Map::block(const Sized& sized, void* const* at, int64_t begin, int64_t n, uint8_t* memory) const {
    std::array<const void*, 256> where{};
    const MapLoops loops = kernels().map();
    bool fine = true;
    for (size_t i = 0; i < values_.size(); ++i) {
        const MapValue& v = values_[i];
        const bool is_last = i + 1 == values_.size();
        uint8_t* result = static_cast<uint8_t*>(at[operands_]) + begin * bytes_of(v.type);
        void* to = is_last ? static_cast<void*>(result) : memory + static_cast<int64_t>(places_[i]) * kBlock * kWidest;
        const auto read = [&](int from) { return from < 0 ? nullptr : where[static_cast<size_t>(from)]; };
        where[i] = to;
        switch (v.kind) {
            case MapValue::Kind::operand: {
                const MapOperand& operand = sized.operands[i];
                if (operand.is_straight())
                    where[i] = static_cast<const uint8_t*>(at[i]) + begin * operand.element;
                else
                    load(operand, at[i], begin, n, to);
                break;
            }
            case MapValue::Kind::number: break;
            case MapValue::Kind::operation:
                fine = loops.operation(v.operation, v.from)(read(v.a), read(v.b), read(v.c), to, n) && fine;
                break;
            case MapValue::Kind::conversion:
                loops.conversion(v.from, v.type)(read(v.a), nullptr, nullptr, to, n);
                break;
            case MapValue::Kind::function:
                kernels().float_function({v.function, static_cast<const float*>(read(v.a)), static_cast<float*>(to)}, 0,
                                         n);
                break;
        }
    }
    return fine;
}

void Map::run(const Sized& sized, void* const* at) const {
    struct Blocks {};
    std::atomic<bool> fine{true};
    const int64_t blocks = (sized.count + kBlock - 1) / kBlock;
    parallel_for(blocks, kElements / kBlock, [&](int64_t begin, int64_t end) {
        uint8_t* memory = scratch_of<Blocks>(static_cast<size_t>(blocks_) * kBlock * kWidest);
        fill_numbers(sized, memory);
        for (int64_t i = begin; i < end; ++i)
            if (!block(sized, at, i * kBlock, std::min(kBlock, sized.count - i * kBlock), memory)) fine = false;
    });
    if (!fine) throw std::invalid_argument("map: an integer is divided by zero");
}

}  // namespace zeropoint
