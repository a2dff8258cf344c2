// The kinds of steps a program may have: one table, each row a name and what makes a step from its description.
//
// To add one: a class in a file of engine/steps/ with its name, kName, whose constructor reads and checks the
// attributes, and whose plan() checks the inputs, makes the outputs and says what is to be done; and its mention in the
// add_... function of that file.
#pragma once

#include "engine/container.h"
#include "engine/fallback.h"
#include "engine/json.h"
#include "engine/planner.h"

#include <initializer_list>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace zeropoint {

class Step {
public:
    virtual ~Step() = default;
    // Packs weights for this CPU. Called once, when the whole program has been found to be in order.
    virtual void prepare() {}
    // Throws PlanError if the inputs do not fit. What it emits may refer to the step.
    virtual void plan(Planner& p) const = 0;
};

// One step of a program while it is read. Every function throws FormatError where something is not as it says.
class StepReader {
public:
    struct Names {
        const std::map<std::string, int32_t>& values;
        const std::vector<const StoredTensor*>& constants;  // by value; null for others
        const std::vector<std::shared_ptr<Foreign>>& foreign;
    };
    StepReader(const Json& step, const Names& names);

    const std::vector<int32_t>& inputs() const { return inputs_; }
    void require_inputs(size_t least, size_t most) const;
    void require_inputs(size_t count) const { require_inputs(count, count); }
    size_t outputs() const { return outputs_; }
    void require_outputs(size_t count) const;

    // An input that is stored in the file; the second is null where the input is.
    const StoredTensor& constant(size_t input, ElementType type, int64_t rank) const;
    const StoredTensor* optional_constant(size_t input, ElementType type, int64_t rank) const;
    // An input that may be stored in the file; null if it is not.
    const StoredTensor* stored(size_t input) const;
    // prepare() makes a copy of this stored input, which the step does not read later.
    void packs(size_t input) { packed_.push_back(input); }
    const std::vector<size_t>& packed() const { return packed_; }
    // A stored input of 256 bytes, or null.
    const uint8_t* optional_table(size_t input) const;

    bool has(const char* name) const;
    int64_t integer(const char* name, int64_t low, int64_t high);
    std::vector<int64_t> integers(const char* name, size_t count, int64_t low, int64_t high);
    Integer size(const char* name);
    std::vector<Integer> sizes(const char* name);
    std::vector<Number> numbers(const char* name, size_t most);
    double number(const char* name);
    // Finite and positive, in float32 too.
    double scale(const char* name);
    bool flag(const char* name);
    std::string text(const char* name);
    ElementType type(const char* name);
    // A list of anything, which the step checks.
    const Json::List& list(const char* name);
    ElementType byte_type(const char* name);
    // What computes a step that the engine cannot; programs in files have none.
    Foreign& foreign(const char* name);
    // Throws FormatError if there are attributes that were not read.
    void finish() const;

    [[noreturn]] void fail(const std::string& what) const { throw FormatError(what); }

private:
    const Json& attribute(const char* name);
    Integer size_of(const Json& json, const char* name) const;

    const Names names_;
    const Json* attributes_;
    std::vector<int32_t> inputs_;
    size_t outputs_ = 0;
    std::vector<std::string> read_;
    std::vector<size_t> packed_;
};

// A step with as many inputs and outputs.
template <size_t inputs, size_t outputs>
class StepOf : public Step {
protected:
    explicit StepOf(StepReader& r) {
        r.require_inputs(inputs);
        r.require_outputs(outputs);
    }
};

using OneInput = StepOf<1, 1>;

// Scale and zero point of bytes, and the range they may have.
struct ByteScale {
    float scale = 1;
    int32_t zero_point = 0;
};
// Attributes <prefix>scale and <prefix>zero_point.
ByteScale read_scale(StepReader& r, const std::string& prefix);

using StepMaker = std::unique_ptr<Step> (*)(StepReader&);

template <class S>
std::unique_ptr<Step> made(StepReader& r) {
    return std::make_unique<S>(r);
}

class StepTable {
public:
    void add(std::initializer_list<std::pair<const std::string, StepMaker>> steps) { makers_.insert(steps); }
    // Null if there is none.
    StepMaker find(const std::string& name) const;
    std::vector<std::string> names() const;

private:
    std::unordered_map<std::string, StepMaker> makers_;
};

const StepTable& step_table();

// One for each file of engine/steps/.
void add_attention_steps(StepTable& table);
void add_border_steps(StepTable& table);
void add_box_steps(StepTable& table);
void add_folding_steps(StepTable& table);
void add_sequence_steps(StepTable& table);
void add_size_arithmetic_steps(StepTable& table);
void add_selection_steps(StepTable& table);
void add_dynamic_layer_steps(StepTable& table);
void add_elementwise_steps(StepTable& table);
void add_embedding_steps(StepTable& table);
void add_float_function_steps(StepTable& table);
void add_float_layer_steps(StepTable& table);
void add_float_pooling_steps(StepTable& table);
void add_float_steps(StepTable& table);
void add_fallback_steps(StepTable& table);
void add_generation_steps(StepTable& table);
void add_layer_steps(StepTable& table);
void add_map_steps(StepTable& table);
void add_matmul_steps(StepTable& table);
void add_matrix_steps(StepTable& table);
void add_movement_steps(StepTable& table);
void add_norm_steps(StepTable& table);
void add_unquantized_steps(StepTable& table);
void add_pooling_steps(StepTable& table);
void add_recurrent_steps(StepTable& table);
void add_reducing_steps(StepTable& table);
void add_resampling_steps(StepTable& table);
void add_view_steps(StepTable& table);
void add_weight_only_steps(StepTable& table);
void add_writing_steps(StepTable& table);

}  // namespace zeropoint
