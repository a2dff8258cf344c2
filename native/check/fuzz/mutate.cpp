#include "check/fuzz/mutate.h"

#include "check/fuzz/fitting.h"
#include "check/fuzz/json_text.h"
#include "check/fuzz/json_tree.h"
#include "engine/step_table.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace zeropoint::check {
namespace {

constexpr const char* kMetadata = "__metadata__";
constexpr const char* kProgram = "zeropoint.program";

const std::vector<int64_t>& strange_integers() {
    static const std::vector<int64_t> list = [] {
        std::vector<int64_t> out{0, 1, -1, 2, 3, 4, 7, 8, 9, -2, -8, -9, 15, 16, 17, 63, 64, 65, 100, 1000};
        for (int bit : {7, 8, 12, 15, 16, 20, 23, 31, 32, 33, 40, 41, 53, 62})
            for (int64_t around : {-1, 0, 1}) {
                out.push_back((int64_t{1} << bit) + around);
                out.push_back(-(int64_t{1} << bit) + around);
            }
        out.push_back(std::numeric_limits<int64_t>::max());
        out.push_back(std::numeric_limits<int64_t>::min());
        return out;
    }();
    return list;
}

const std::vector<double>& strange_reals() {
    static const std::vector<double> list{0.0,   -0.0, 1.0,  -1.0,   0.5,   1e-3,   1e-37,   1.2e-38, 3e-39, 1e-45,
                                          1e-46, 1e37, 3e38, 3.5e38, 1e300, 1e-300, 65535.5, 1e9,     2.5};
    return list;
}

const std::vector<float>& strange_floats() {
    static const std::vector<float> list{0.0f,
                                         -0.0f,
                                         1.0f,
                                         -1.0f,
                                         1e-38f,
                                         1e-45f,
                                         3e38f,
                                         -3e38f,
                                         std::numeric_limits<float>::infinity(),
                                         -std::numeric_limits<float>::infinity(),
                                         std::numeric_limits<float>::quiet_NaN()};
    return list;
}

Json::Record& record_of(Json& json) {
    if (json.record() == nullptr) json.value = Json::Record{};
    return std::get<Json::Record>(json.value);
}

Json nested(Random& random) {
    Json deep;
    const size_t depth = random.one_in(4) ? random.below(5000) : random.below(40);
    for (size_t i = 0; i < depth; ++i) {
        Json::List list;
        Json::Record record;
        if (random.one_in(2)) {
            list.push_back(std::move(deep));
            deep.value = std::move(list);
        } else {
            record.emplace_back("a", std::move(deep));
            deep.value = std::move(record);
        }
    }
    return deep;
}

Json small_integer(Random& random) { return {random.between(-1, 9)}; }

// Dtypes, shapes and offsets of stored tensors: mostly so that they still fit the bytes.
void change_tensors(Json& header, Random& random) {
    Json::Record& tensors = record_of(header);
    if (tensors.empty()) return;
    const size_t which = random.below(tensors.size());
    Json& tensor = tensors[which].second;
    Json* shape = find(tensor, "shape");
    Json* offsets = find(tensor, "data_offsets");
    if (shape == nullptr || shape->list() == nullptr || offsets == nullptr || offsets->list() == nullptr) return;
    Json::List& sizes = std::get<Json::List>(shape->value);
    Json::List& range = std::get<Json::List>(offsets->value);
    switch (random.below(10)) {
        case 0:
            for (size_t i = sizes.size(); i-- > 1;) std::swap(sizes[i], sizes[random.below(i + 1)]);
            break;
        case 1:  // two axes become one
            if (sizes.size() > 1 && sizes[0].integer() != nullptr && sizes[1].integer() != nullptr &&
                std::max(*sizes[0].integer(), *sizes[1].integer()) < (int64_t{1} << 31)) {
                sizes[1].value = *sizes[0].integer() * *sizes[1].integer();
                sizes.erase(sizes.begin());
            }
            break;
        case 2:
            sizes.insert(sizes.begin() + static_cast<std::ptrdiff_t>(random.below(sizes.size() + 1)), Json{int64_t{1}});
            break;
        case 3:
            if (!sizes.empty()) sizes[random.below(sizes.size())].value = random.pick(strange_integers());
            break;
        case 4: {
            static const std::vector<std::string> types{"U8",  "I8",   "I16",  "I32", "I64",     "F32", "F16",
                                                        "F64", "BF16", "BOOL", "U32", "F8_E4M3", "",    "f32"};
            if (Json* type = find(tensor, "dtype")) type->value = random.pick(types);
            break;
        }
        case 5:
            if (!range.empty()) {
                Json& end = range[random.below(range.size())];
                const int64_t before = end.integer() == nullptr ? 0 : *end.integer();
                if (random.one_in(3))
                    end.value = random.pick(strange_integers());
                else if (before < (int64_t{1} << 40) && before > -(int64_t{1} << 40))
                    end.value = before + random.between(-9, 9);
            }
            break;
        case 6: {  // the bytes of another tensor
            Json* other = find(tensors[random.below(tensors.size())].second, "data_offsets");
            if (other != nullptr) *offsets = Json(*other);
            break;
        }
        case 7: {
            const size_t other = random.below(tensors.size());
            if (other != which) std::swap(tensors[which].second, tensors[other].second);
            break;
        }
        case 8: {
            auto twice = tensors[which];
            if (random.one_in(2)) twice.first += "'";
            tensors.push_back(std::move(twice));
            break;
        }
        default: tensors.erase(tensors.begin() + static_cast<std::ptrdiff_t>(which));
    }
}

// The values of constants: scales, zero points, tables, weights.
void change_data(std::string& data, Random& random) {
    if (data.empty()) return;
    const size_t changes = 1 + random.below(8);
    for (size_t i = 0; i < changes; ++i) {
        const size_t at = random.below(data.size()) / 4 * 4;
        if (random.one_in(2) && at + 4 <= data.size()) {
            if (random.one_in(2)) {
                std::memcpy(data.data() + at, &random.pick(strange_floats()), 4);
            } else {
                const int32_t value = static_cast<int32_t>(static_cast<uint64_t>(random.pick(strange_integers())));
                std::memcpy(data.data() + at, &value, 4);
            }
        } else {
            data[random.below(data.size())] = static_cast<char>(random.bits());
        }
    }
    if (random.one_in(8)) data.resize(random.below(data.size() * 2));
}

void change_bytes(std::string& file, Random& random) {
    const size_t changes = 1 + random.below(4);
    for (size_t i = 0; i < changes && !file.empty(); ++i) {
        const size_t at = random.below(random.one_in(3) ? std::min<size_t>(file.size(), 16) : file.size());
        switch (random.below(8)) {
            case 0: file[at] = static_cast<char>(file[at] ^ (1 << random.below(8))); break;
            case 1: file[at] = static_cast<char>(random.bits()); break;
            case 2: file.insert(at, 1, static_cast<char>(random.bits())); break;
            case 3: file.erase(at, 1 + random.below(9)); break;
            case 4: file.resize(at); break;
            case 5: file.append(random.below(100), '\0'); break;
            case 6: file.insert(at, file.substr(random.below(file.size()), random.below(64))); break;
            default: {
                static const std::vector<std::string> marks{"\"", "{",  "}",   "[", "]", ",",
                                                            ":",  "\\", "\\u", "e", "-", "."};
                file.insert(at, random.pick(marks));
            }
        }
    }
}

}  // namespace

FileParts::FileParts(std::string_view file) {
    uint64_t length = 0;
    if (file.size() < 8) throw FormatError("too short");
    std::memcpy(&length, file.data(), 8);
    if (length > file.size() - 8) throw FormatError("the header is too long");
    Json all = parse_json(file.substr(8, length));
    Json::Record tensors;
    for (auto& [key, value] : record_of(all)) {
        if (key != kMetadata) {
            tensors.emplace_back(key, std::move(value));
            continue;
        }
        const Json* text = value.find(kProgram);
        if (text == nullptr || text->text() == nullptr) throw FormatError("it has no program");
        program = parse_json(*text->text());
    }
    header.value = std::move(tensors);
    data = std::string(file.substr(8 + length));
}

std::string FileParts::file(size_t padding) const {
    std::string program_text;
    write_json(program, program_text);
    std::string out(8, '\0');
    out.reserve(2 * program_text.size() + data.size());
    out += std::string("{\"") + kMetadata + "\":{\"" + kProgram + "\":";
    write_text(program_text, out);
    out += '}';
    if (const Json::Record* tensors = header.record())
        for (const auto& [name, tensor] : *tensors) {
            out += ',';
            write_text(name, out);
            out += ':';
            write_json(tensor, out);
        }
    out += '}';
    out.append(padding, ' ');
    const uint64_t length = out.size() - 8;
    std::memcpy(out.data(), &length, 8);
    return out + data;
}

Mutator::Mutator(std::vector<std::string> files) : texts_(step_table().names()) {
    for (const std::string& file : files) parts_.emplace_back(file);
    for (FileParts& parts : parts_) {
        std::vector<Json*> all;
        collect(parts.program, all);
        for (const Json* json : all) {
            if (json->text() != nullptr && json->text()->size() < 64) texts_.push_back(*json->text());
            subtrees_.push_back(*json);
        }
        if (const Json::List* steps = list_in(parts.program, "steps"))
            steps_.insert(steps_.end(), steps->begin(), steps->end());
    }
    for (const char* name : {"uint8", "int8", "int16", "int32", "int64", "float32", "float16", "bool", "float64", "",
                             "add", "subtract", "multiply", "floor_divide", "scaled", "\xC3\xA9", "0"})
        texts_.emplace_back(name);
    texts_.push_back(std::string(300, 'x'));
}

std::string Mutator::some_text(Random& random) const { return random.pick(texts_); }

Json Mutator::strange_value(const Json& old, Random& random) const {
    if (const int64_t* integer = old.integer(); integer != nullptr && !random.one_in(8)) {
        switch (random.below(4)) {
            case 0: return {random.pick(strange_integers())};
            case 1: return {static_cast<int64_t>(static_cast<uint64_t>(*integer) + random.bits() % 7 - 3)};
            case 2: return {static_cast<int64_t>(static_cast<uint64_t>(*integer) * 2)};
            default: return small_integer(random);
        }
    }
    if (old.text() != nullptr && !random.one_in(8)) return {some_text(random)};
    if (old.boolean() != nullptr && !random.one_in(4)) return {!*old.boolean()};
    switch (random.below(9)) {
        case 0: return {nullptr};
        case 1: return {random.one_in(2)};
        case 2: return {random.pick(strange_integers())};
        case 3: return {random.pick(strange_reals())};
        case 4: return {some_text(random)};
        case 5: return {Json::List{}};
        case 6: return {Json::Record{}};
        case 7: return random.one_in(20) ? nested(random) : small_integer(random);
        default: return random.pick(subtrees_);
    }
}

void Mutator::change_tree(Json& root, Random& random) const {
    std::vector<Json*> all;
    collect(root, all);
    Json& at = *all[random.below(all.size())];
    if (at.list() != nullptr && !random.one_in(6)) {
        Json::List& list = std::get<Json::List>(at.value);
        const size_t i = random.below(list.size());
        switch (random.below(5)) {
            case 0:
                if (!list.empty()) list.erase(list.begin() + static_cast<std::ptrdiff_t>(i));
                return;
            case 1:
                if (!list.empty()) list.push_back(Json(list[i]));
                return;
            case 2:
                if (!list.empty()) std::swap(list[i], list[random.below(list.size())]);
                return;
            case 3: list.push_back(strange_value(list.empty() ? Json{} : list[i], random)); return;
            default:
                if (!list.empty()) list[i] = strange_value(list[i], random);
                return;
        }
    }
    if (at.record() != nullptr && !random.one_in(6)) {
        Json::Record& record = std::get<Json::Record>(at.value);
        const size_t i = random.below(record.size());
        if (record.empty()) {
            record.emplace_back(some_text(random), random.pick(subtrees_));
            return;
        }
        switch (random.below(5)) {
            case 0: record.erase(record.begin() + static_cast<std::ptrdiff_t>(i)); return;
            case 1: record.push_back(std::pair<std::string, Json>(record[i])); return;  // the key is repeated
            case 2: record[i].first = some_text(random); return;
            case 3: record.emplace_back(some_text(random), random.pick(subtrees_)); return;
            default: record[i].second = strange_value(record[i].second, random); return;
        }
    }
    at = strange_value(Json(at), random);
}

// Steps that read other values, stand elsewhere, or come from other programs.
void Mutator::change_steps(FileParts& parts, Random& random) const {
    Json::List* steps = list_in(parts.program, "steps");
    if (steps == nullptr || steps->empty()) return;
    std::vector<std::string> values;
    for (const auto& [name, tensor] : record_of(parts.header)) values.push_back(name);
    for (const char* made : {"inputs", "steps"})
        if (Json::List* list = list_in(parts.program, made))
            for (Json& json : *list) {
                if (const Json* name = json.find("name"); name != nullptr && name->text() != nullptr)
                    values.push_back(*name->text());
                if (Json::List* outputs = list_in(json, "outputs"))
                    for (const Json& name : *outputs)
                        if (name.text() != nullptr) values.push_back(*name.text());
            }
    if (values.empty()) return;
    const size_t i = random.below(steps->size());
    Json& step = (*steps)[i];
    switch (random.below(9)) {
        case 0:
            if (Json* op = find(step, "op")) op->value = random.pick(step_table().names());
            return;
        case 1:
        case 2: {
            Json::List* inputs = list_in(step, "inputs");
            if (inputs == nullptr || inputs->empty()) return;
            Json& input = (*inputs)[random.below(inputs->size())];
            if (random.one_in(6))
                input.value = nullptr;
            else
                input.value = random.pick(values);
            return;
        }
        case 3: std::swap(step, (*steps)[random.below(steps->size())]); return;
        case 4: steps->erase(steps->begin() + static_cast<std::ptrdiff_t>(i)); return;
        case 5: {
            Json* outputs = find(parts.program, "outputs");
            if (outputs != nullptr && outputs->list() != nullptr)
                std::get<Json::List>(outputs->value).push_back(Json{random.pick(values)});
            return;
        }
        case 6: {  // attributes: numbers nearby
            Json* attributes = find(step, "attributes");
            if (attributes == nullptr) return;
            std::vector<Json*> all;
            collect(*attributes, all);
            Json& at = *all[random.below(all.size())];
            if (at.integer() != nullptr)
                at = small_integer(random);
            else if (std::holds_alternative<double>(at.value))
                at.value = random.pick(strange_reals());
            else if (at.boolean() != nullptr)
                at.value = !*at.boolean();
            return;
        }
        default: {  // a step of some program, in between two of this one, that reads values of this one
            Json more = random.pick(steps_);
            std::string made = "more" + std::to_string(random.below(1000));
            if (Json::List* outputs = list_in(more, "outputs"); outputs != nullptr && outputs->size() == 1)
                (*outputs)[0].value = made;
            if (Json::List* inputs = list_in(more, "inputs"))
                for (Json& input : *inputs)
                    if (input.text() != nullptr) input.value = random.pick(values);
            if (Json::List* inputs = list_in(step, "inputs");
                inputs != nullptr && !inputs->empty() && random.one_in(2)) {
                // Between this step and what it read.
                if (Json::List* reads = list_in(more, "inputs"); reads != nullptr && !reads->empty())
                    (*reads)[0] = Json((*inputs)[0]);
                (*inputs)[0].value = made;
            }
            steps->insert(steps->begin() + static_cast<std::ptrdiff_t>(i), std::move(more));
        }
    }
}

// Shapes of the inputs.
void Mutator::change_program(FileParts& parts, Random& random) const {
    Json::List* inputs = list_in(parts.program, "inputs");
    if (inputs == nullptr || inputs->empty() || random.one_in(2)) return change_tree(parts.program, random);
    Json& input = (*inputs)[random.below(inputs->size())];
    Json::List *shape = list_in(input, "shape"), *example = list_in(input, "example");
    if (shape == nullptr || example == nullptr || shape->empty() || shape->size() != example->size()) return;
    const size_t axis = random.below(shape->size());
    const Json size = random.one_in(4) ? Json{random.pick(strange_integers())} : small_integer(random);
    (*example)[axis] = size;
    if (random.one_in(2)) (*shape)[axis] = random.one_in(2) ? size : Json{nullptr};
    if (random.one_in(6)) {
        shape->push_back((*shape)[axis]);
        example->push_back((*example)[axis]);
    }
}

std::string Mutator::change(FileParts parts, Random& random) const {
    for (bool more = true; more; more = random.one_in(4)) {
        const size_t kind = random.below(20);
        if (kind < 15)
            change_in_order(parts, random);
        else if (kind < 16)
            change_steps(parts, random);
        else if (kind < 17)
            change_program(parts, random);
        else if (kind < 19)
            change_data(parts.data, random);
        else
            change_tensors(parts.header, random);
    }
    return parts.file(0);
}

std::string Mutator::make(uint64_t seed, uint64_t number) const {
    Random random(seed, number);
    FileParts parts = random.pick(parts_);
    bool bytes = false;
    size_t padding = 0;
    for (bool more = true; more; more = random.one_in(2)) {
        const size_t kind = random.below(20);
        if (kind < 6)
            change_steps(parts, random);
        else if (kind < 12)
            change_program(parts, random);
        else if (kind < 15)
            change_tensors(parts.header, random);
        else if (kind < 17)
            change_data(parts.data, random);
        else if (kind < 18)
            change_tree(parts.header, random);
        else if (kind < 19)
            padding = random.below(9);
        else
            bytes = true;
    }
    std::string file = parts.file(padding);
    if (bytes) change_bytes(file, random);
    return file;
}

}  // namespace zeropoint::check
