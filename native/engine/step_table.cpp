#include "engine/step_table.h"

#include <algorithm>
#include <cmath>

namespace zeropoint {
namespace {

constexpr int64_t kMostStepInputs = 1 << 16;

}  // namespace

StepReader::StepReader(const Json& step, const Names& names) : names_(names), attributes_(step.find("attributes")) {
    const Json *inputs = step.find("inputs"), *outputs = step.find("outputs");
    if (inputs == nullptr || inputs->list() == nullptr) fail("inputs must be a list");
    if (outputs == nullptr || outputs->list() == nullptr) fail("outputs must be a list");
    if (attributes_ != nullptr && attributes_->record() == nullptr) fail("attributes must be an object");
    if (inputs->list()->size() > kMostStepInputs) fail("too many inputs");
    outputs_ = outputs->list()->size();
    for (const Json& name : *inputs->list()) {
        if (name.is_null()) {
            inputs_.push_back(-1);
            continue;
        }
        if (name.text() == nullptr) fail("an input must be the name of a value, or null");
        const auto found = names.values.find(*name.text());
        if (found == names.values.end()) fail("input '" + *name.text() + "' has not been made before");
        inputs_.push_back(found->second);
    }
}

void StepReader::require_inputs(size_t least, size_t most) const {
    if (inputs_.size() < least || inputs_.size() > most)
        fail("there are " + std::to_string(inputs_.size()) + " inputs, not " + std::to_string(least) +
             (most > least ? " or more" : ""));
}

void StepReader::require_outputs(size_t count) const {
    if (outputs_ != count) fail("there are " + std::to_string(outputs_) + " outputs, not " + std::to_string(count));
}

const StoredTensor* StepReader::optional_constant(size_t input, ElementType type, int64_t rank) const {
    if (input >= inputs_.size() || inputs_[input] < 0) return nullptr;
    const StoredTensor* found = names_.constants[static_cast<size_t>(inputs_[input])];
    const std::string which = "input " + std::to_string(input);
    if (found == nullptr) fail(which + " must be stored in the file");
    if (found->type != type) fail(which + " must be " + name_of(type) + ", it is " + name_of(found->type));
    if (static_cast<int64_t>(found->sizes.size()) != rank)
        fail(which + " must have " + std::to_string(rank) + " axes, its shape is " + text_of(found->sizes));
    return found;
}

const StoredTensor& StepReader::constant(size_t input, ElementType type, int64_t rank) const {
    const StoredTensor* found = optional_constant(input, type, rank);
    if (found == nullptr) fail("input " + std::to_string(input) + " is missing");
    return *found;
}

const StoredTensor* StepReader::stored(size_t input) const {
    if (input >= inputs_.size() || inputs_[input] < 0) return nullptr;
    return names_.constants[static_cast<size_t>(inputs_[input])];
}

const uint8_t* StepReader::optional_table(size_t input) const {
    const StoredTensor* table = optional_constant(input, ElementType::u8, 1);
    if (table != nullptr && table->count() != 256)
        fail("input " + std::to_string(input) + " must be a table of 256 bytes, its shape is " + text_of(table->sizes));
    return table == nullptr ? nullptr : table->data;
}

bool StepReader::has(const char* name) const { return attributes_ != nullptr && attributes_->find(name) != nullptr; }

const Json& StepReader::attribute(const char* name) {
    const Json* found = attributes_ == nullptr ? nullptr : attributes_->find(name);
    if (found == nullptr) fail(std::string("attribute '") + name + "' is missing");
    read_.emplace_back(name);
    return *found;
}

int64_t StepReader::integer(const char* name, int64_t low, int64_t high) {
    const int64_t* value = attribute(name).integer();
    if (value == nullptr || *value < low || *value > high)
        fail(std::string("attribute '") + name + "' must be an integer from " + std::to_string(low) + " to " +
             std::to_string(high));
    return *value;
}

std::vector<int64_t> StepReader::integers(const char* name, size_t count, int64_t low, int64_t high) {
    const Json::List* list = attribute(name).list();
    if (list == nullptr || list->size() != count)
        fail(std::string("attribute '") + name + "' must be a list of " + std::to_string(count));
    std::vector<int64_t> out;
    for (const Json& item : *list) {
        const int64_t* value = item.integer();
        if (value == nullptr || *value < low || *value > high)
            fail(std::string("attribute '") + name + "' must have integers from " + std::to_string(low) + " to " +
                 std::to_string(high));
        out.push_back(*value);
    }
    return out;
}

Integer StepReader::size_of(const Json& json, const char* name) const {
    if (const int64_t* value = json.integer()) return {*value, -1};
    if (json.text() == nullptr)
        fail(std::string("attribute '") + name + "' must have integers, or names of values that are");
    const auto found = names_.values.find(*json.text());
    if (found == names_.values.end()) fail("value '" + *json.text() + "' has not been made before");
    return {0, found->second};
}

Integer StepReader::size(const char* name) { return size_of(attribute(name), name); }

std::vector<Integer> StepReader::sizes(const char* name) {
    const Json::List* list = attribute(name).list();
    if (list == nullptr || list->size() > kMostAxes)
        fail(std::string("attribute '") + name + "' must be a list of at most " + std::to_string(kMostAxes));
    std::vector<Integer> out;
    for (const Json& item : *list) out.push_back(size_of(item, name));
    return out;
}

std::vector<Number> StepReader::numbers(const char* name, size_t most) {
    const Json::List& given = list(name);
    if (given.size() > most) fail(std::string("attribute '") + name + "' has more than " + std::to_string(most));
    std::vector<Number> out;
    for (const Json& item : given) {
        double real = 0;
        if (item.integer() == nullptr && item.number(real)) {
            out.push_back({real, -1});
        } else {
            const Integer whole = size_of(item, name);
            out.push_back({whole.literal, whole.value});
        }
    }
    return out;
}

double StepReader::number(const char* name) {
    double value = 0;
    if (!attribute(name).number(value)) fail(std::string("attribute '") + name + "' must be a number");
    return value;
}

double StepReader::scale(const char* name) {
    const double value = number(name);
    const float single = static_cast<float>(value);
    if (!std::isfinite(single) || single <= 0)
        fail(std::string("attribute '") + name + "' must be a positive number within float32, it is " +
             std::to_string(value));
    return value;
}

bool StepReader::flag(const char* name) {
    const bool* value = attribute(name).boolean();
    if (value == nullptr) fail(std::string("attribute '") + name + "' must be true or false");
    return *value;
}

std::string StepReader::text(const char* name) {
    const std::string* value = attribute(name).text();
    if (value == nullptr) fail(std::string("attribute '") + name + "' must be a string");
    return *value;
}

const Json::List& StepReader::list(const char* name) {
    const Json::List* found = attribute(name).list();
    if (found == nullptr) fail(std::string("attribute '") + name + "' must be a list");
    return *found;
}

ElementType StepReader::type(const char* name) { return type_from_name(text(name)); }

ElementType StepReader::byte_type(const char* name) {
    const ElementType found = type(name);
    if (found != ElementType::u8 && found != ElementType::s8)
        fail(std::string("attribute '") + name + "' must be uint8 or int8");
    return found;
}

Foreign& StepReader::foreign(const char* name) {
    const int64_t number = integer(name, 0, std::numeric_limits<int64_t>::max());
    if (number >= static_cast<int64_t>(names_.foreign.size()))
        fail("it is computed by PyTorch, which only the program that was compiled can do");
    return *names_.foreign[static_cast<size_t>(number)];
}

void StepReader::finish() const {
    if (attributes_ == nullptr) return;
    for (const auto& field : *attributes_->record())
        if (std::find(read_.begin(), read_.end(), field.first) == read_.end())
            fail("attribute '" + field.first + "' is not known");
}

ByteScale read_scale(StepReader& r, const std::string& prefix) {
    return {static_cast<float>(r.scale((prefix + "scale").c_str())),
            static_cast<int32_t>(r.integer((prefix + "zero_point").c_str(), -128, 255))};
}

StepMaker StepTable::find(const std::string& name) const {
    const auto found = makers_.find(name);
    return found == makers_.end() ? nullptr : found->second;
}

std::vector<std::string> StepTable::names() const {
    std::vector<std::string> out;
    for (const auto& row : makers_) out.push_back(row.first);
    std::sort(out.begin(), out.end());
    return out;
}

const StepTable& step_table() {
    static const StepTable table = [] {
        StepTable t;
        add_attention_steps(t);
        add_border_steps(t);
        add_box_steps(t);
        add_folding_steps(t);
        add_sequence_steps(t);
        add_size_arithmetic_steps(t);
        add_selection_steps(t);
        add_dynamic_layer_steps(t);
        add_elementwise_steps(t);
        add_embedding_steps(t);
        add_float_function_steps(t);
        add_float_layer_steps(t);
        add_float_pooling_steps(t);
        add_float_steps(t);
        add_fallback_steps(t);
        add_generation_steps(t);
        add_layer_steps(t);
        add_map_steps(t);
        add_matmul_steps(t);
        add_matrix_steps(t);
        add_movement_steps(t);
        add_norm_steps(t);
        add_unquantized_steps(t);
        add_pooling_steps(t);
        add_recurrent_steps(t);
        add_reducing_steps(t);
        add_resampling_steps(t);
        add_view_steps(t);
        add_weight_only_steps(t);
        add_writing_steps(t);
        return t;
    }();
    return table;
}

}  // namespace zeropoint
