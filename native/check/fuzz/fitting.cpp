#include "check/fuzz/fitting.h"

#include "check/fuzz/json_tree.h"

#include <algorithm>
#include <map>
#include <optional>

namespace zeropoint::check {
namespace {

constexpr size_t kMostData = 1 << 14;  // bytes of all tensors: larger files are tried less often
constexpr size_t kMostJoined = 1 << 12;
constexpr size_t kMostChangedSize = 80;

struct TensorBytes {
    std::string name, type;
    std::vector<size_t> sizes;
    std::string bytes;

    size_t count() const {
        size_t n = 1;
        for (const size_t size : sizes) n *= size;
        return n;
    }
    // This many along an axis; what is missing repeats what is there.
    void resize(size_t axis, size_t size) {
        const size_t elements = count(), before = sizes[axis];
        if (elements == 0 || bytes.empty() || bytes.size() % elements != 0 || bytes.size() / before * size > kMostData)
            return;
        size_t inner = bytes.size() / elements;  // bytes of what lies behind one index
        for (size_t i = axis + 1; i < sizes.size(); ++i) inner *= sizes[i];
        std::string made;
        for (size_t outer = 0; outer < bytes.size() / (inner * before); ++outer)
            for (size_t i = 0; i < size; ++i) made.append(bytes, (outer * before + i % before) * inner, inner);
        sizes[axis] = size;
        bytes = std::move(made);
    }
};

using Tensors = std::vector<TensorBytes>;

size_t size_of(const Json& json) {
    const int64_t* n = json.integer();
    return n == nullptr || *n < 0 || *n > int64_t{1} << 20 ? size_t{0} : static_cast<size_t>(*n);
}

// None if the container is not in order.
std::optional<Tensors> tensors_of(FileParts& parts) {
    Tensors all;
    for (auto& [name, entry] : std::get<Json::Record>(parts.header.value)) {
        const Json* type = entry.find("dtype");
        const Json::List *shape = list_in(entry, "shape"), *offsets = list_in(entry, "data_offsets");
        if (type == nullptr || type->text() == nullptr || shape == nullptr || offsets == nullptr ||
            offsets->size() != 2)
            return std::nullopt;
        const size_t begin = size_of((*offsets)[0]), end = size_of((*offsets)[1]);
        if (begin > end || end > parts.data.size()) return std::nullopt;
        TensorBytes tensor{name, *type->text(), {}, parts.data.substr(begin, end - begin)};
        for (const Json& size : *shape) tensor.sizes.push_back(size_of(size));
        if (tensor.sizes.size() > 8 || tensor.count() > parts.data.size()) return std::nullopt;
        all.push_back(std::move(tensor));
    }
    return all;
}

// One behind the other.
void put_tensors(FileParts& parts, const Tensors& tensors) {
    Json::Record header;
    parts.data.clear();
    for (const TensorBytes& tensor : tensors) {
        Json::List shape;
        for (const size_t size : tensor.sizes) shape.push_back({static_cast<int64_t>(size)});
        const auto begin = static_cast<int64_t>(parts.data.size());
        parts.data += tensor.bytes;
        const auto end = static_cast<int64_t>(parts.data.size());
        header.emplace_back(tensor.name, Json{Json::Record{{"dtype", {tensor.type}},
                                                           {"shape", {std::move(shape)}},
                                                           {"data_offsets", {Json::List{{begin}, {end}}}}}});
    }
    parts.header.value = std::move(header);
}

size_t some_size(size_t before, Random& random) {
    static const std::vector<size_t> edges{0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65};
    return random.one_in(2) ? random.pick(edges) : 1 + random.below(std::min(before + 4, kMostChangedSize));
}

void replace(Json& json, int64_t before, int64_t after) {
    std::vector<Json*> all;
    collect(json, all);
    for (Json* at : all)
        if (const int64_t* n = at->integer(); n != nullptr && *n == before) at->value = after;
}

// Channels, features, hidden sizes: layers still fit each other. Gates are several times as many as hidden values.
void change_a_size(FileParts& parts, Tensors& tensors, Random& random) {
    std::vector<size_t> seen;
    for (const TensorBytes& tensor : tensors) seen.insert(seen.end(), tensor.sizes.begin(), tensor.sizes.end());
    if (seen.empty()) return;
    const size_t before = random.pick(seen), after = some_size(before, random);
    if (before == 0) return;
    const size_t most_gates = random.one_in(2) ? 4 : 1;
    for (TensorBytes& tensor : tensors)
        for (size_t axis = 0; axis < tensor.sizes.size(); ++axis)
            for (size_t gates = 1; gates <= most_gates; ++gates)
                if (tensor.sizes[axis] == before * gates) {
                    tensor.resize(axis, after * gates);
                    break;
                }
    const bool everywhere = !random.one_in(3);
    for (const char* where : {"inputs", "state", "steps"})
        if (Json::List* list = list_in(parts.program, where); list != nullptr && (everywhere || *where == 'i'))
            for (Json& item : *list) replace(item, static_cast<int64_t>(before), static_cast<int64_t>(after));
}

void change_a_tensor(Tensors& tensors, Random& random) {
    if (tensors.empty()) return;
    TensorBytes& tensor = tensors[random.below(tensors.size())];
    if (tensor.sizes.empty()) return;
    const size_t axis = random.below(tensor.sizes.size());
    if (tensor.sizes.size() > 1 && random.one_in(3))
        std::swap(tensor.sizes[axis], tensor.sizes[random.below(tensor.sizes.size())]);
    else
        tensor.resize(axis, some_size(tensor.sizes[axis], random));
}

const std::string* first_name(Json& step, const char* list) {
    const Json::List* names = list_in(step, list);
    return names == nullptr || names->empty() ? nullptr : (*names)[0].text();
}

void rename_inputs(Json::List& steps, size_t from, const std::string& before, const std::string& after) {
    for (size_t i = from; i < steps.size(); ++i)
        if (Json::List* inputs = list_in(steps[i], "inputs"))
            for (Json& input : *inputs)
                if (input.text() != nullptr && *input.text() == before) input.value = after;
}

void change_order(FileParts& parts, Random& random) {
    Json::List* steps = list_in(parts.program, "steps");
    if (steps == nullptr || steps->empty()) return;
    const size_t i = random.below(steps->size());
    const std::string *from = first_name((*steps)[i], "inputs"), *to = first_name((*steps)[i], "outputs");
    switch (random.below(4)) {
        case 0: {  // left out: what it made is what it read
            if (from == nullptr || to == nullptr || steps->size() < 2) return;
            const std::string before = *to, after = *from;
            steps->erase(steps->begin() + static_cast<std::ptrdiff_t>(i));
            rename_inputs(*steps, 0, before, after);
            if (Json::List* outputs = list_in(parts.program, "outputs"))
                for (Json& output : *outputs)
                    if (output.text() != nullptr && *output.text() == before) output.value = after;
            return;
        }
        case 1: {  // again, on what it made
            if (from == nullptr || to == nullptr) return;
            const std::string made = *to, again = *to + "_" + std::to_string(random.below(1000000));
            Json more = (*steps)[i];
            Json::List *inputs = list_in(more, "inputs"), *outputs = list_in(more, "outputs");
            for (size_t k = 0; k < outputs->size(); ++k)
                (*outputs)[k].value = k == 0 ? again : again + std::to_string(k);
            (*inputs)[0].value = made;
            rename_inputs(*steps, i + 1, made, again);
            steps->insert(steps->begin() + static_cast<std::ptrdiff_t>(i) + 1, std::move(more));
            return;
        }
        case 2: std::swap((*steps)[i], (*steps)[i + 1 < steps->size() ? i + 1 : i]); return;
        default: {  // of this step, what another step of its kind has
            const auto op_of = [](const Json& step) {
                const Json* op = step.find("op");
                return op == nullptr || op->text() == nullptr ? std::string() : *op->text();
            };
            for (Json& other : *steps) {
                if (&other == &(*steps)[i] || op_of(other) != op_of((*steps)[i])) continue;
                Json *mine = find((*steps)[i], "attributes"), *theirs = find(other, "attributes");
                if (mine != nullptr && theirs != nullptr) *mine = Json(*theirs);
                if (random.one_in(2)) return;
            }
        }
    }
}

// In attributes, and the sizes of inputs.
void change_a_number(FileParts& parts, Random& random) {
    std::vector<Json*> all, numbers;
    if (Json::List* steps = list_in(parts.program, "steps"); steps != nullptr && !steps->empty())
        if (Json* attributes = find((*steps)[random.below(steps->size())], "attributes")) collect(*attributes, all);
    for (Json* json : all)
        if (json->integer() != nullptr || json->boolean() != nullptr || std::holds_alternative<double>(json->value))
            numbers.push_back(json);
    if (numbers.empty()) return;
    Json& at = *random.pick(numbers);
    if (const bool* flag = at.boolean())
        at.value = !*flag;
    else if (const int64_t* n = at.integer(); n != nullptr && *n < int64_t{1} << 40 && *n > -(int64_t{1} << 40))
        at.value = random.one_in(2) ? *n + random.between(-2, 2) : random.between(-1, 8);
    else if (const double* real = std::get_if<double>(&at.value))
        at.value = *real * (random.one_in(2) ? 0.5 : random.one_in(2) ? -1.0 : 1e6);
}

void change_example(FileParts& parts, Random& random) {
    Json::List* inputs = list_in(parts.program, "inputs");
    if (inputs == nullptr || inputs->empty()) return;
    Json& input = (*inputs)[random.below(inputs->size())];
    Json::List *shape = list_in(input, "shape"), *example = list_in(input, "example");
    if (shape == nullptr || example == nullptr || shape->empty() || shape->size() != example->size()) return;
    const size_t axis = random.below(shape->size());
    const Json size{static_cast<int64_t>(some_size(size_of((*example)[axis]), random))};
    (*example)[axis] = size;
    if ((*shape)[axis].integer() != nullptr)
        (*shape)[axis] = random.one_in(3) ? Json{nullptr} : size;
    else if (random.one_in(4))
        (*shape)[axis] = size;
}

}  // namespace

void change_in_order(FileParts& parts, Random& random) {
    switch (random.below(8)) {
        case 0:
        case 1:
        case 2: {
            std::optional<Tensors> tensors = tensors_of(parts);
            if (!tensors) return;
            Tensors before = *tensors;
            if (random.one_in(4))
                change_a_tensor(*tensors, random);
            else
                change_a_size(parts, *tensors, random);
            size_t bytes = 0;
            for (const TensorBytes& tensor : *tensors) bytes += tensor.bytes.size();
            put_tensors(parts, bytes <= kMostData ? *tensors : before);
            return;
        }
        case 3:
        case 4: return change_order(parts, random);
        case 5: return change_example(parts, random);
        default: return change_a_number(parts, random);
    }
}

FileParts joined(FileParts a, FileParts b, Random& random) {
    const std::optional<Tensors> first = tensors_of(a), second = tensors_of(b);
    if (!first || !second || a.data.size() + b.data.size() > kMostJoined) return a;
    Tensors tensors = *first;
    std::map<std::string, std::string> names;  // of b, where a has them, too
    const auto renamed = [&](const std::string& name) { return names.emplace(name, name + "_b").first->second; };
    for (TensorBytes tensor : *second) {
        tensor.name = renamed(tensor.name);
        tensors.push_back(std::move(tensor));
    }
    const auto rename = [&](Json& json) {
        if (json.text() != nullptr) json.value = renamed(*json.text());
    };
    const Json::List* made = list_in(a.program, "outputs");
    Json::List* inputs = list_in(b.program, "inputs");
    if (made != nullptr && !made->empty() && inputs != nullptr && !inputs->empty() && random.one_in(2)) {
        const Json* name = (*inputs)[0].find("name");
        const std::string* from = (*made)[random.below(made->size())].text();
        if (name != nullptr && name->text() != nullptr && from != nullptr) {
            names[*name->text()] = *from;
            inputs->erase(inputs->begin());
        }
    }
    for (const char* where : {"inputs", "state"})
        if (Json::List* list = list_in(b.program, where))
            for (Json& item : *list)
                for (const char* field : {"name", "initial", "next"})
                    if (Json* name = find(item, field)) rename(*name);
    if (Json::List* list = list_in(b.program, "steps"))
        for (Json& step : *list) {
            for (const char* field : {"inputs", "outputs"})
                if (Json::List* values = list_in(step, field))
                    for (Json& value : *values) rename(value);
        }
    if (Json::List* list = list_in(b.program, "outputs"))
        for (Json& output : *list) rename(output);
    for (const char* where : {"inputs", "state", "steps", "outputs"}) {
        Json::List *to = list_in(a.program, where), *from = list_in(b.program, where);
        if (to != nullptr && from != nullptr) to->insert(to->end(), from->begin(), from->end());
    }
    if (Json* result = find(a.program, "result")) result->value = std::string();
    put_tensors(a, tensors);
    return a;
}

}  // namespace zeropoint::check
