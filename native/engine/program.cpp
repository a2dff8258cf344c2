#include "engine/program.h"

#include "cpu/forks.h"
#include "cpu/memory.h"
#include "cpu/threads.h"

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <list>
#include <mutex>
#include <new>
#include <optional>
#include <set>
#include <string_view>

namespace zeropoint {
namespace {

// 1 has no state, 2 no arguments and no constants in the result, 3 no outputs that are given as
// another type.
constexpr int64_t kVersion = 4;
constexpr size_t kMostSteps = 1 << 14;
constexpr size_t kMostInputs = 1024;
constexpr size_t kMostState = 4096;
constexpr size_t kKeptPlans = 16;
constexpr int64_t kMostExample = int64_t{1} << 32;
constexpr const char* kMetadataKey = "zeropoint.program";

const Json& field(const Json& json, const char* name) {
    const Json* found = json.find(name);
    if (found == nullptr) throw FormatError(std::string("'") + name + "' is missing");
    return *found;
}

const std::string& text_field(const Json& json, const char* name) {
    const std::string* text = field(json, name).text();
    if (text == nullptr) throw FormatError(std::string("'") + name + "' must be a string");
    return *text;
}

const Json::List& list_field(const Json& json, const char* name) {
    const Json::List* list = field(json, name).list();
    if (list == nullptr) throw FormatError(std::string("'") + name + "' must be a list");
    return *list;
}

// Whatever else is there would be ignored.
void require_fields(const Json& json, std::initializer_list<std::string_view> names) {
    if (json.record() == nullptr) throw FormatError("expected an object");
    for (const auto& [name, value] : *json.record())
        if (std::find(names.begin(), names.end(), name) == names.end())
            throw FormatError("'" + name + "' is not known");
}

// `where` in front of whatever is wrong.
template <class Body>
void within(const std::string& where, const Body& body) {
    try {
        body();
    } catch (const FormatError& error) {
        throw FormatError(where + ": " + error.what());
    } catch (const PlanError& error) {
        throw PlanError(where + ": " + error.what());
    }
}

ProgramInput read_input(const Json& json, std::vector<std::string>& names) {
    require_fields(json, {"name", "dtype", "shape", "example"});
    ProgramInput input;
    input.name = text_field(json, "name");
    input.type = type_from_name(text_field(json, "dtype"));
    if (list_field(json, "shape").size() > kMostAxes || list_field(json, "example").size() > kMostAxes)
        throw FormatError("input '" + input.name + "' has more than " + std::to_string(kMostAxes) + " axes");
    for (const Json& size : list_field(json, "shape")) {
        if (size.is_null()) {
            input.sizes.push_back(-1);
            input.axes.emplace_back("");
        } else if (const int64_t* n = size.integer(); n != nullptr && *n >= 0) {
            input.sizes.push_back(*n);
            input.axes.push_back(std::to_string(*n));
        } else if (const std::string* name = size.text()) {
            const auto found = std::find(names.begin(), names.end(), *name);
            input.sizes.push_back(-2 - (found - names.begin()));
            if (found == names.end()) names.push_back(*name);
            input.axes.push_back(*name);
        } else {
            throw FormatError("a size of the shape must be an integer, a name or null");
        }
    }
    for (const Json& size : list_field(json, "example")) {
        if (size.integer() == nullptr || *size.integer() < 0 || *size.integer() > kMostExample)
            throw FormatError("a size of the example is none");
        input.example.push_back(*size.integer());
    }
    return input;
}

// What an output can be given as where no step has such values.
const std::set<std::string> kGivenAs = {"as complex64", "as complex128", "as float64", "as int16", "as number"};

// What `result` and `arguments` may be: the number of an output or input, or a list, tuple or dictionary of such; with
// `version` 3 also ['constant', a number, a flag, a word or null], with 4 ['as ...', an output].
void check_nesting(const Json& tree, const std::string& what, size_t count, int64_t version) {
    if (const int64_t* number = tree.integer()) {
        if (*number < 0 || *number >= static_cast<int64_t>(count))
            throw FormatError("there is no " + what + " " + std::to_string(*number));
        return;
    }
    const Json::List* node = tree.list();
    const std::string* kind = node != nullptr && node->size() == 2 ? (*node)[0].text() : nullptr;
    if (version >= 4 && kind != nullptr && kGivenAs.count(*kind) != 0) {
        if ((*node)[1].integer() == nullptr) throw FormatError("expected the number of an " + what);
        check_nesting((*node)[1], what, count, version);
        return;
    }
    if (version >= 3 && kind != nullptr && *kind == "constant") {
        if ((*node)[1].list() != nullptr || (*node)[1].record() != nullptr)
            throw FormatError("a constant must be a number, a flag, a word or null");
        return;
    }
    const Json::List* parts = kind != nullptr ? (*node)[1].list() : nullptr;
    if (parts == nullptr || (*kind != "list" && *kind != "tuple" && *kind != "dict"))
        throw FormatError("expected the number of an " + what + ", or ['list' or 'tuple' or 'dict', [...]]");
    for (const Json& part : *parts) {
        if (*kind != "dict") {
            check_nesting(part, what, count, version);
            continue;
        }
        if (part.list() == nullptr || part.list()->size() != 2 || (*part.list())[0].text() == nullptr)
            throw FormatError("expected pairs of a key and a value");
        check_nesting((*part.list())[1], what, count, version);
    }
}

// Counts how often each array is named by a nesting that was checked.
void count_arrays(const Json& tree, std::vector<int>& named) {
    if (const int64_t* number = tree.integer()) {
        ++named[static_cast<size_t>(*number)];
        return;
    }
    const Json::List& node = *tree.list();
    if (*node[0].text() == "constant") return;
    for (const Json& part : *node[1].list()) count_arrays(*node[0].text() == "dict" ? (*part.list())[1] : part, named);
}

// Whether a part of a call is a tuple or a dictionary of that kind.
bool is_kind(const Json& tree, const char* kind) {
    const Json::List* node = tree.list();
    return node != nullptr && node->size() == 2 && (*node)[0].text() != nullptr && *(*node)[0].text() == kind;
}

// A call is a tuple of a tuple and a dictionary, and has every input once.
void check_arguments(const Json& tree, size_t inputs) {
    check_nesting(tree, "input", inputs, 3);
    const Json::List* parts = is_kind(tree, "tuple") ? (*tree.list())[1].list() : nullptr;
    if (parts == nullptr || parts->size() != 2 || !is_kind((*parts)[0], "tuple") || !is_kind((*parts)[1], "dict"))
        throw FormatError("expected a tuple of a tuple and a dictionary");
    std::vector<int> named(inputs);
    count_arrays(tree, named);
    for (size_t i = 0; i < inputs; ++i)
        if (named[i] != 1) throw FormatError("input " + std::to_string(i) + " must be named once");
}

}  // namespace

// The steps, with weights packed for one instruction set.
struct Program::Prepared {
    struct Record {
        std::string where;
        std::vector<int32_t> inputs, outputs;
        std::vector<size_t> packed;  // of the inputs
        std::unique_ptr<Step> step;
    };
    Isa isa;
    std::vector<Record> steps;
};

struct Program::Memory {
    AlignedBytes bytes;
    std::vector<void*> bases;

    uint8_t* arena(int64_t wanted) {
        if (static_cast<int64_t>(bytes.size()) < wanted) {
            bytes = AlignedBytes();
            bytes = AlignedBytes(static_cast<size_t>(wanted), false);
        }
        return bytes.data();
    }
};

// What changes while a program runs. The mutex of a parent process may be held by a thread that its child does not
// have, and what it guards may be half changed: the child leaves both alone and begins anew.
struct Program::Shared {
    explicit Shared(std::shared_ptr<const Prepared> steps) : forks(count_of_forks()), prepared(std::move(steps)) {}

    const int forks;
    std::mutex mutex;
    std::shared_ptr<const Prepared> prepared;
    // Last used first.
    std::list<std::pair<std::vector<InputLayout>, std::shared_ptr<const Plan>>> plans;
    std::vector<std::unique_ptr<Memory>> idle;
};

Program::Shared& Program::shared() {
    Shared* now = shared_.load(std::memory_order_acquire);
    if (now->forks == count_of_forks()) return *now;
    auto made = std::make_unique<Shared>(first_);
    if (shared_.compare_exchange_strong(now, made.get(), std::memory_order_acq_rel)) return *made.release();
    return *now;
}

Program::Program(Container container, int64_t memory_limit, std::vector<std::shared_ptr<Foreign>> foreign)
    : container_(std::move(container)),
      limit_(memory_limit),
      foreign_(std::move(foreign)) {
    parse();
    auto made = make_steps(true);
    std::vector<InputLayout> layouts;
    for (const ProgramInput& input : inputs_) layouts.push_back({input.example, false});
    std::shared_ptr<const Plan> plan;
    try {
        check_fit(layouts);
        plan = std::make_shared<const Plan>(make_plan(made, layouts));
    } catch (const PlanError& error) {
        throw FormatError(error.what());
    }
    for (const auto& record : made->steps)
        within(record.where, [&] {
            try {
                record.step->prepare();
            } catch (const std::invalid_argument& error) {
                throw FormatError(error.what());
            }
        });
    find_packed(*made);
    container_.forget(packed_);
    first_ = std::move(made);
    auto shared = std::make_unique<Shared>(first_);
    shared->plans.emplace_front(std::move(layouts), std::move(plan));
    shared_ = shared.release();
}

int64_t packed_limit(int64_t file_bytes, int64_t memory_limit) {
    const int64_t worth = 60'000'000 + 16 * file_bytes;
    return memory_limit > kDefaultMemoryLimit ? std::max(worth, memory_limit) : worth;
}

std::vector<std::string> tensors_in_place(const std::map<std::string, std::string>& metadata) {
    const auto found = metadata.find(kMetadataKey);
    std::map<std::string, bool> in_place;  // and nowhere else
    if (found == metadata.end()) return {};
    try {
        const Json json = parse_json(found->second);
        for (const Json& step : list_field(json, "steps")) {
            const std::string& op = text_field(step, "op");
            const size_t first = op == "group_linear" ? 1 : op == "group_embedding" ? 0 : kMostSteps;
            const Json::List& inputs = list_field(step, "inputs");
            for (size_t i = 0; i < inputs.size(); ++i)
                if (const std::string* name = inputs[i].text()) {
                    const bool is_weight = i >= first && i < first + 3;
                    const auto [entry, added] = in_place.emplace(*name, is_weight);
                    entry->second = entry->second && is_weight;
                }
        }
        for (const Json& output : list_field(json, "outputs"))
            if (output.text() != nullptr) in_place[*output.text()] = false;
        if (const Json* state = json.find("state"); state != nullptr && state->list() != nullptr)
            for (const Json& tensor : *state->list())
                for (const char* part : {"initial", "next"})
                    if (const Json* name = tensor.find(part); name != nullptr && name->text() != nullptr)
                        in_place[*name->text()] = false;
    } catch (const FormatError&) {
        return {};  // the program will say what is wrong
    }
    std::vector<std::string> names;
    for (const auto& [name, only] : in_place)
        if (only) names.push_back(name);
    return names;
}

std::unique_ptr<Program> Program::of_stranger(Container container, int64_t memory_limit) {
    const MemoryLimit limit(packed_limit(container.bytes(), memory_limit));
    try {
        return std::make_unique<Program>(std::move(container), memory_limit);
    } catch (const MemoryLimit::Exceeded& error) {
        throw FormatError(std::string("its weights take ") + error.what() +
                          " when they are packed for this CPU, which is out of proportion to the file. If you trust it,"
                          " load it with a memory_limit that is more, and above " +
                          std::to_string(kDefaultMemoryLimit));
    }
}

Program::~Program() {
    // That of a parent process is left alone.
    if (Shared* last = shared_.load(); last != nullptr && last->forks == count_of_forks()) delete last;
}

void Program::parse() {
    const auto found = container_.metadata().find(kMetadataKey);
    if (found == container_.metadata().end())
        throw FormatError(std::string("not a .zpt file: it has no metadata '") + kMetadataKey + "'");
    within("program", [&] {
        json_ = parse_json(found->second);
        const int64_t* version = field(json_, "version").integer();
        if (version == nullptr || *version < 1) throw FormatError("'version' must be a positive integer");
        if (*version > kVersion)
            throw FormatError("version " + std::to_string(*version) +
                              " is newer than this library, which reads up to " + std::to_string(kVersion));
        require_fields(json_, {"version", "inputs", "outputs", "result", "steps", *version < 2 ? "steps" : "state",
                               *version < 3 ? "steps" : "arguments"});
        version_ = *version;
    });
    const std::function<void(const std::string&, const StoredTensor*)> define = [&](const std::string& name,
                                                                                    const StoredTensor* constant) {
        if (!values_.emplace(name, static_cast<int32_t>(constants_.size())).second)
            throw FormatError("value '" + name + "' is made twice");
        constants_.push_back(constant);
    };
    for (const auto& [name, tensor] : container_.tensors()) define(name, &tensor);
    std::vector<std::string> names;
    within("inputs", [&] {
        if (list_field(json_, "inputs").size() > kMostInputs)
            throw FormatError("there are more than " + std::to_string(kMostInputs));
        for (const Json& json : list_field(json_, "inputs")) {
            inputs_.push_back(read_input(json, names));
            define(inputs_.back().name, nullptr);
        }
    });
    if (json_.find("state") != nullptr) within("state", [&] { parse_state(define); });
    const Json::List& steps = list_field(json_, "steps");
    if (steps.size() > kMostSteps)
        throw FormatError("there are " + std::to_string(steps.size()) + " steps, more than " +
                          std::to_string(kMostSteps));
    for (const auto& [name, kept] :
         {std::pair<const char*, std::string*>{"result", &result_}, {"arguments", &arguments_}})
        if (const Json* nesting = json_.find(name)) {
            if (nesting->text() == nullptr) throw FormatError(std::string("'") + name + "' must be a string");
            *kept = *nesting->text();
        }
}

void Program::parse_state(const std::function<void(const std::string&, const StoredTensor*)>& define) {
    const Json::List& list = list_field(json_, "state");
    if (list.size() > kMostState) throw FormatError("there are more than " + std::to_string(kMostState));
    double bytes = 0;
    for (const Json& json : list) {
        require_fields(json, {"name", "dtype", "shape", "initial", "next"});
        StateTensor tensor;
        tensor.name = text_field(json, "name");
        tensor.next_name = text_field(json, "next");
        tensor.type = type_from_name(text_field(json, "dtype"));
        for (const Json& size : list_field(json, "shape")) {
            if (size.integer() == nullptr || *size.integer() < 0)
                throw FormatError("a size of '" + tensor.name + "' must be an integer that is not negative");
            tensor.sizes.push_back(*size.integer());
        }
        try {
            bytes += static_cast<double>(tensor.bytes());
        } catch (const PlanError& error) {
            throw FormatError("'" + tensor.name + "': " + error.what());
        }
        if (bytes > static_cast<double>(limit_))
            throw FormatError("it needs more than the memory limit of " + std::to_string(limit_) + " bytes");
        const Json& initial = field(json, "initial");
        if (!initial.is_null()) {
            const auto& stored = container_.tensors();
            const auto found = initial.text() == nullptr ? stored.end() : stored.find(*initial.text());
            if (found == stored.end()) throw FormatError("'initial' must be null or the name of a stored tensor");
            tensor.initial = &found->second;
            if (tensor.initial->type != tensor.type || tensor.initial->sizes != tensor.sizes)
                throw FormatError("'" + tensor.name + "' has another type or shape than its initial value");
        }
        define(tensor.name, nullptr);
        tensor.value = values_.at(tensor.name);
        state_.push_back(std::move(tensor));
    }
}

// The first time, the values that steps make get their names.
std::shared_ptr<const Program::Prepared> Program::make_steps(bool first) {
    auto made = std::make_shared<Prepared>();
    made->isa = active_isa();
    const Json::List& steps = list_field(json_, "steps");
    for (size_t i = 0; i < steps.size(); ++i) {
        const Json* op = steps[i].find("op");
        Prepared::Record record;
        record.where = "step " + std::to_string(i);
        if (op != nullptr && op->text() != nullptr) record.where += " (" + *op->text() + ")";
        within(record.where, [&] {
            require_fields(steps[i], {"op", "inputs", "outputs", "attributes"});
            const StepMaker make = step_table().find(text_field(steps[i], "op"));
            if (make == nullptr) throw FormatError("there is no such kind of step");
            StepReader reader(steps[i], {values_, constants_, foreign_});
            record.step = make(reader);
            reader.finish();
            record.inputs = reader.inputs();
            record.packed = reader.packed();
            for (const Json& output : list_field(steps[i], "outputs")) {
                if (output.text() == nullptr) throw FormatError("an output must be a name");
                if (first) {
                    if (!values_.emplace(*output.text(), static_cast<int32_t>(constants_.size())).second)
                        throw FormatError("value '" + *output.text() + "' is made twice");
                    constants_.push_back(nullptr);
                }
                record.outputs.push_back(values_.at(*output.text()));
            }
            if (first)
                notes_.push_back(
                    {*op->text(), record.outputs.empty() ? "" : *list_field(steps[i], "outputs")[0].text()});
        });
        made->steps.push_back(std::move(record));
    }
    if (first)
        within("outputs", [&] {
            for (const Json& name : list_field(json_, "outputs")) {
                const auto value = name.text() == nullptr ? values_.end() : values_.find(*name.text());
                if (value == values_.end()) throw FormatError("there is no such value");
                outputs_.push_back(value->second);
            }
            if (outputs_.empty()) throw FormatError("there must be one at least");
        });
    if (first)
        within("state", [&] {
            for (StateTensor& tensor : state_) {
                const auto value = values_.find(tensor.next_name);
                if (value == values_.end()) throw FormatError("there is no value '" + tensor.next_name + "'");
                tensor.next = value->second;
            }
        });
    if (first && !result_.empty())
        within("result", [&] { check_nesting(parse_json(result_), "output", outputs_.size(), version_); });
    if (first && !arguments_.empty())
        within("arguments", [&] { check_arguments(parse_json(arguments_), inputs_.size()); });
    return made;
}

// Packed by every step that reads them, and no result themselves.
void Program::find_packed(const Prepared& made) {
    std::vector<bool> is_read(constants_.size(), false), is_packed(is_read);
    for (const int32_t value : outputs_) is_read[static_cast<size_t>(value)] = true;
    std::vector<const StoredTensor*> initial;
    for (const StateTensor& tensor : state_) {
        is_read[static_cast<size_t>(tensor.next)] = true;
        initial.push_back(tensor.initial);
    }
    std::sort(initial.begin(), initial.end(), std::less<>());
    for (size_t i = 0; i < constants_.size(); ++i)
        if (std::binary_search(initial.begin(), initial.end(), constants_[i], std::less<>())) is_read[i] = true;
    for (const Prepared::Record& record : made.steps)
        for (size_t i = 0; i < record.inputs.size(); ++i) {
            if (record.inputs[i] < 0) continue;
            const bool packs = std::find(record.packed.begin(), record.packed.end(), i) != record.packed.end();
            (packs ? is_packed : is_read)[static_cast<size_t>(record.inputs[i])] = true;
        }
    for (size_t i = 0; i < constants_.size(); ++i)
        if (constants_[i] != nullptr && is_packed[i] && !is_read[i]) packed_.push_back(constants_[i]);
}

std::string Program::data() {
    Shared& s = shared();
    std::lock_guard<std::mutex> lock(s.mutex);
    container_.recall();
    std::string bytes(container_.data());
    container_.forget(packed_);
    return bytes;
}

void Program::check_fit(const std::vector<InputLayout>& layouts) const {
    if (layouts.size() != inputs_.size())
        throw PlanError("the program has " + std::to_string(inputs_.size()) + " inputs, got " +
                        std::to_string(layouts.size()));
    Sizes named;
    for (size_t i = 0; i < layouts.size(); ++i) {
        const ProgramInput& input = inputs_[i];
        const Sizes& sizes = layouts[i].sizes;
        const auto refuse = [&] {
            std::string wanted;
            for (const std::string& axis : input.axes)
                wanted += (wanted.empty() ? "" : ", ") + (axis.empty() ? "*" : axis);
            throw PlanError("input '" + input.name + "' has shape " + text_of(sizes) + ", the program needs (" +
                            wanted + ")");
        };
        if (sizes.size() != input.sizes.size()) refuse();
        for (size_t axis = 0; axis < sizes.size(); ++axis) {
            int64_t wanted = input.sizes[axis];
            if (wanted == -1) continue;
            if (wanted < -1) {
                const size_t name = static_cast<size_t>(-2 - wanted);
                if (named.size() <= name) named.resize(name + 1, -1);
                if (named[name] < 0) named[name] = sizes[axis];
                wanted = named[name];
            }
            if (sizes[axis] != wanted) refuse();
        }
    }
}

Plan Program::make_plan(const std::shared_ptr<const Prepared>& made, const std::vector<InputLayout>& layouts) const {
    Planner planner(constants_.size(), limit_);
    for (size_t i = 0; i < constants_.size(); ++i) {
        const StoredTensor* stored = constants_[i];
        if (stored == nullptr) continue;
        Buffer buffer;
        buffer.kind = BufferKind::constant;
        buffer.bytes = stored->bytes();
        buffer.constant = stored->data;
        planner.set(static_cast<int32_t>(i),
                    Tensor{stored->type, stored->sizes, contiguous_strides(stored->sizes), planner.add_buffer(buffer)});
    }
    for (size_t i = 0; i < inputs_.size(); ++i) {
        const InputLayout& layout = layouts[i];
        Tensor x{inputs_[i].type, layout.sizes, {}, {}};
        Buffer buffer;
        buffer.kind = BufferKind::input;
        buffer.bytes = x.bytes();
        buffer.index = static_cast<int32_t>(i);
        x.strides = layout.channels_last ? channels_inside_strides(x.sizes) : contiguous_strides(x.sizes);
        x.place = planner.add_buffer(buffer);
        planner.set(values_.at(inputs_[i].name), x);
    }
    for (size_t i = 0; i < state_.size(); ++i) {
        Tensor x{state_[i].type, state_[i].sizes, contiguous_strides(state_[i].sizes), {}};
        Buffer buffer;
        buffer.kind = BufferKind::state;
        buffer.bytes = x.bytes();
        buffer.index = static_cast<int32_t>(i);
        x.place = planner.add_buffer(buffer);
        planner.set(state_[i].value, x);
    }
    for (size_t i = 0; i < made->steps.size(); ++i) {
        const Prepared::Record& record = made->steps[i];
        planner.begin(static_cast<int32_t>(i), record.inputs, record.outputs);
        within(record.where, [&] { record.step->plan(planner); });
    }
    Plan plan = planner.finish(outputs_, state_);
    plan.steps = made;
    return plan;
}

std::shared_ptr<const Plan> Program::plan(const std::vector<InputLayout>& layouts) {
    Shared& s = shared();
    std::lock_guard<std::mutex> lock(s.mutex);
    if (s.prepared->isa != active_isa()) {
        container_.recall();
        auto made = make_steps(false);
        for (const auto& record : made->steps) record.step->prepare();
        container_.forget(packed_);
        s.prepared = std::move(made);
        s.plans.clear();
    }
    for (auto at = s.plans.begin(); at != s.plans.end(); ++at)
        if (at->first == layouts) {
            if (at->second->threads != num_threads()) {
                s.plans.erase(at);
                break;
            }
            if (at != s.plans.begin()) s.plans.splice(s.plans.begin(), s.plans, at);
            return at->second;
        }
    check_fit(layouts);
    s.plans.emplace_front(layouts, std::make_shared<const Plan>(make_plan(s.prepared, layouts)));
    if (s.plans.size() > kKeptPlans) s.plans.pop_back();
    return s.plans.front().second;
}

std::vector<std::string> Program::output_names() const {
    std::vector<std::string> names;
    for (const Json& name : list_field(json_, "outputs")) names.push_back(*name.text());
    return names;
}

void Program::run(const Plan& plan, const void* const* inputs, void* const* outputs, State& state, double* seconds) {
    std::optional<State::Use> use;
    if (!state_.empty()) use.emplace(state);
    std::unique_ptr<Memory> memory;
    {
        Shared& s = shared();
        std::lock_guard<std::mutex> lock(s.mutex);
        if (!s.idle.empty()) {
            memory = std::move(s.idle.back());
            s.idle.pop_back();
        }
    }
    if (!memory) memory = std::make_unique<Memory>();
    uint8_t* arena = memory->arena(plan.arena_bytes);
    if (memory->bases.size() < plan.buffers.size() + plan.most_places)
        memory->bases.resize(plan.buffers.size() + plan.most_places);
    // Given back whatever happens; to the system, if there is no memory for the list of what is idle.
    const auto give_back = [this](Memory* m) noexcept {
        std::unique_ptr<Memory> used(m);
        try {
            Shared& s = shared();
            std::lock_guard<std::mutex> lock(s.mutex);
            s.idle.push_back(std::move(used));
        } catch (const std::bad_alloc&) {
        }
    };
    const std::unique_ptr<Memory, decltype(give_back)> held(memory.release(), give_back);
    plan.run(inputs, outputs, state.addresses(), arena, held->bases.data(), seconds);
}

}  // namespace zeropoint
