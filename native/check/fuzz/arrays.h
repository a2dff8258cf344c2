// Sizes and values for the inputs of a program, chosen by chance, and its results for them.
#pragma once

#include "check/fuzz/random.h"
#include "engine/program.h"

#include <cstring>
#include <limits>
#include <vector>

namespace zeropoint::check {

inline std::vector<InputLayout> some_layouts(const Program& program, Random& random, bool example) {
    std::vector<InputLayout> layouts;
    for (const ProgramInput& input : program.inputs()) {
        InputLayout layout{input.example, false};
        for (size_t axis = 0; axis < layout.sizes.size() && !example; ++axis)
            if (random.one_in(input.sizes[axis] < 0 ? 2 : 20)) layout.sizes[axis] = random.between(0, 12);
        const bool image = layout.sizes.size() == 4 || layout.sizes.size() == 5;
        layout.channels_last = image && random.one_in(3);
        layouts.push_back(layout);
    }
    return layouts;
}

// Exactly as much memory as is needed, so that a sanitizer sees what reads or writes beyond it.
using Bytes = std::vector<uint8_t>;

// `extremes`: NaN and infinity among the floats, and integers that are no index of anything.
inline Bytes some_values(ElementType type, int64_t count, Random& random, bool extremes) {
    Bytes bytes(static_cast<size_t>(count * bytes_of(type)));
    if (type == ElementType::f32) {
        for (int64_t i = 0; i < count; ++i) {
            float value = static_cast<float>(random.between(-1000, 1000)) / 256.0f;
            if (extremes && random.one_in(100))
                value =
                    random.one_in(2) ? std::numeric_limits<float>::quiet_NaN() : std::numeric_limits<float>::infinity();
            std::memcpy(bytes.data() + i * 4, &value, 4);
        }
        return bytes;
    }
    const bool wide = extremes && random.one_in(3);
    for (size_t i = 0; i < bytes.size(); ++i)
        bytes[i] = type == ElementType::boolean                   ? random.one_in(2)
                   : bytes_of(type) == 1 || wide                  ? static_cast<uint8_t>(random.bits())
                   : i % static_cast<size_t>(bytes_of(type)) == 0 ? static_cast<uint8_t>(random.below(4))
                                                                  : uint8_t{0};
    return bytes;
}

struct Arrays {
    std::vector<Bytes> inputs;
    std::vector<const void*> from;

    explicit Arrays(std::vector<Bytes> values) : inputs(std::move(values)) {
        for (const Bytes& bytes : inputs) from.push_back(bytes.data());
    }
    Arrays(const Program& program, const std::vector<InputLayout>& layouts, Random& random, bool extremes)
        : Arrays(chosen(program, layouts, random, extremes)) {}

private:
    static std::vector<Bytes> chosen(const Program& program, const std::vector<InputLayout>& layouts, Random& random,
                                     bool extremes) {
        std::vector<Bytes> r;
        for (size_t i = 0; i < layouts.size(); ++i)
            r.push_back(some_values(program.inputs()[i].type, count_of(layouts[i].sizes), random, extremes));
        return r;
    }
};

// In memory that held `before`.
inline std::vector<Bytes> outputs_of(Program& program, const Plan& plan, const Arrays& arrays, uint8_t before) {
    std::vector<Bytes> outputs;
    std::vector<void*> to;
    for (const Tensor& y : plan.outputs) outputs.emplace_back(static_cast<size_t>(y.bytes()), before);
    for (Bytes& bytes : outputs) to.push_back(bytes.data());
    State state(program.state());
    program.run(plan, arrays.from.data(), to.data(), state);
    return outputs;
}

// Whether all outputs are the same; neither the sign nor the payload of a NaN is part of any contract.
inline bool are_same(const std::vector<Tensor>& outputs, const std::vector<Bytes>& a, const std::vector<Bytes>& b) {
    for (size_t i = 0; i < a.size(); ++i) {
        if (a[i] == b[i]) continue;
        if (outputs[i].type != ElementType::f32 || a[i].size() != b[i].size()) return false;
        for (size_t at = 0; at < a[i].size(); at += sizeof(float)) {
            float u, v;
            std::memcpy(&u, a[i].data() + at, sizeof u);
            std::memcpy(&v, b[i].data() + at, sizeof v);
            if (std::memcmp(&u, &v, sizeof u) != 0 && !(u != u && v != v)) return false;
        }
    }
    return true;
}

}  // namespace zeropoint::check
