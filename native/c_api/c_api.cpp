// The C API over engine/program.h: checks what comes from outside, and turns exceptions into statuses.
#include "cpu/isa.h"
#include "cpu/threads.h"
#include "engine/copy.h"
#include "engine/program.h"
#include "zeropoint/zeropoint.h"

#include <algorithm>
#include <new>
#include <system_error>

using namespace zeropoint;

static_assert(ZP_MAX_RANK == kMostAxes);
static_assert(static_cast<int>(ElementType::u8) == ZP_UINT8 && static_cast<int>(ElementType::s8) == ZP_INT8 &&
              static_cast<int>(ElementType::s16) == ZP_INT16 && static_cast<int>(ElementType::s32) == ZP_INT32 &&
              static_cast<int>(ElementType::s64) == ZP_INT64 && static_cast<int>(ElementType::f32) == ZP_FLOAT32 &&
              static_cast<int>(ElementType::f16) == ZP_FLOAT16 && static_cast<int>(ElementType::boolean) == ZP_BOOL);

struct zp_program {
    std::shared_ptr<Program> shared;
};

struct zp_session {
    explicit zp_session(std::shared_ptr<Program> shared) : program(std::move(shared)), state(program->state()) {}

    // What one call needs; kept, so that calls with inputs of the same sizes allocate nothing of their own.
    struct Inputs {
        std::vector<InputLayout> layouts;
        std::vector<const void*> addresses;
        std::vector<std::vector<uint8_t>> copies;
    };

    std::shared_ptr<Program> program;
    State state;
    Inputs inputs;
    std::vector<void*> addresses;             // of the outputs
    std::vector<std::vector<uint8_t>> owned;  // memory of outputs that the caller gave none for
    std::atomic_flag running = ATOMIC_FLAG_INIT;
};

namespace {

thread_local std::string t_error;

struct ArgumentError : std::invalid_argument {
    using std::invalid_argument::invalid_argument;
};

struct SmallBuffer : std::invalid_argument {
    using std::invalid_argument::invalid_argument;
};

struct Busy : std::runtime_error {
    using std::runtime_error::runtime_error;
};

zp_status failed(zp_status status, const char* message) noexcept {
    try {
        t_error = message;
    } catch (...) {
        t_error.clear();
    }
    return status;
}

// Lets nothing through, and is not noexcept: clang 14 for WebAssembly ends the process where such a function catches.
template <class Body>
zp_status guarded(const Body& body) {
    try {
        body();
        return ZP_OK;
    } catch (const ArgumentError& error) {
        return failed(ZP_INVALID_ARGUMENT, error.what());
    } catch (const SmallBuffer& error) {
        return failed(ZP_BUFFER_TOO_SMALL, error.what());
    } catch (const Busy& error) {
        return failed(ZP_BUSY, error.what());
    } catch (const FormatError& error) {
        return failed(ZP_BAD_FILE, error.what());
    } catch (const std::bad_alloc&) {
        return failed(ZP_OUT_OF_MEMORY, "out of memory");
    } catch (const std::system_error& error) {
        return failed(ZP_IO_ERROR, error.what());
    } catch (const PlanError& error) {
        return failed(ZP_BAD_SHAPE, error.what());
    } catch (const std::invalid_argument& error) {
        return failed(ZP_INVALID_ARGUMENT, error.what());
    } catch (const std::exception& error) {
        return failed(ZP_INTERNAL_ERROR, error.what());
    } catch (...) {
        return failed(ZP_INTERNAL_ERROR, "an unknown error");
    }
}

void need(const void* pointer, const char* name) {
    if (pointer == nullptr) throw ArgumentError(std::string(name) + " is NULL");
}

// Held while a session is used: a second thread is told so instead of spoiling the first one's memory.
class Running {
public:
    explicit Running(zp_session& session) : session_(session) {
        if (session.running.test_and_set(std::memory_order_acquire))
            throw Busy("another thread is running this session; create one for each thread");
    }
    ~Running() { session_.running.clear(std::memory_order_release); }
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;

private:
    zp_session& session_;
};

int64_t limit_of(const zp_options* options) {
    if (options == nullptr || options->memory_limit == 0) return kDefaultMemoryLimit;
    if (options->memory_limit < 0)
        throw ArgumentError("memory_limit must not be negative, got " + std::to_string(options->memory_limit));
    return options->memory_limit;
}

Tensor read_tensor(const zp_tensor& given, const ProgramInput& input) {
    if (given.type != static_cast<int32_t>(input.type)) {
        const bool known = given.type >= 0 && given.type <= static_cast<int32_t>(ElementType::boolean);
        throw ArgumentError("input '" + input.name + "' must be of type " + name_of(input.type) + ", got " +
                            (known ? name_of(static_cast<ElementType>(given.type)) : std::to_string(given.type)));
    }
    if (given.rank < 0 || given.rank > ZP_MAX_RANK)
        throw ArgumentError("input '" + input.name + "' has rank " + std::to_string(given.rank) +
                            ", at most 8 is possible");
    Tensor x;
    x.type = input.type;
    x.sizes.assign(given.sizes, given.sizes + given.rank);
    count_of(x.sizes);
    x.strides.assign(given.strides, given.strides + given.rank);
    if (std::all_of(x.strides.begin(), x.strides.end(), [](int64_t s) { return s == 0; }))
        x.strides = contiguous_strides(x.sizes);
    return x;
}

// Looks at the tensors. Without data only their sizes count.
void read_inputs(zp_session& session, const zp_tensor* given, size_t count, bool with_data) {
    const std::vector<ProgramInput>& wanted = session.program->inputs();
    if (count != wanted.size())
        throw ArgumentError("the program takes " + std::to_string(wanted.size()) + " inputs, got " +
                            std::to_string(count));
    if (count > 0) need(given, "inputs");
    zp_session::Inputs& inputs = session.inputs;
    inputs.layouts.resize(count);
    inputs.addresses.resize(count);
    inputs.copies.resize(count);
    for (size_t i = 0; i < count; ++i) {
        const Tensor x = read_tensor(given[i], wanted[i]);
        const bool contiguous = x.is_contiguous();
        inputs.layouts[i].sizes = x.sizes;
        inputs.layouts[i].channels_last = !contiguous && x.is_channels_last();
        inputs.addresses[i] = given[i].data;
        if (!with_data) continue;
        if (given[i].data == nullptr && x.count() > 0)
            throw ArgumentError("the data of input '" + wanted[i].name + "' is NULL");
        const auto boundary = static_cast<uintptr_t>(bytes_of(x.type));
        if (reinterpret_cast<uintptr_t>(given[i].data) % boundary != 0)
            throw ArgumentError("the data of input '" + wanted[i].name + "' is not on a boundary of its elements");
    }
}

// Copies the tensors whose layout no step can read. Called once the program has a plan for them: sizes that do not fit,
// which may be those of a tensor that repeats itself, take no memory.
void copy_inputs(zp_session& session, const zp_tensor* given) {
    zp_session::Inputs& inputs = session.inputs;
    for (size_t i = 0; i < inputs.layouts.size(); ++i) {
        const Tensor x = read_tensor(given[i], session.program->inputs()[i]);
        if (x.is_contiguous() || inputs.layouts[i].channels_last) continue;
        Tensor copied = x;
        copied.strides = contiguous_strides(x.sizes);
        inputs.copies[i].resize(static_cast<size_t>(x.bytes()));
        StridedCopy(x, copied).run(given[i].data, inputs.copies[i].data());
        inputs.addresses[i] = inputs.copies[i].data();
    }
}

void describe(const Tensor& y, zp_tensor& output) {
    output.bytes = static_cast<size_t>(y.bytes());
    output.type = static_cast<int32_t>(y.type);
    output.rank = static_cast<int32_t>(y.rank());
    std::fill(std::copy(y.sizes.begin(), y.sizes.end(), output.sizes), output.sizes + ZP_MAX_RANK, 0);
    std::fill(std::copy(y.strides.begin(), y.strides.end(), output.strides), output.strides + ZP_MAX_RANK, 0);
}

void check_output_count(const zp_session& session, const zp_tensor* outputs, size_t count) {
    if (count != session.program->outputs())
        throw ArgumentError("the program gives " + std::to_string(session.program->outputs()) +
                            " outputs, got room for " + std::to_string(count));
    if (count > 0) need(outputs, "outputs");
}

// The memory for the outputs: the caller's, checked, or the session's own.
void place_outputs(zp_session& session, const Plan& plan, const zp_tensor* outputs) {
    const size_t count = plan.outputs.size();
    session.addresses.resize(count);
    session.owned.resize(count);
    for (size_t i = 0; i < count; ++i) {
        const Tensor& y = plan.outputs[i];
        const auto bytes = static_cast<size_t>(y.bytes());
        if (outputs == nullptr || outputs[i].data == nullptr) {
            if (session.owned[i].size() < bytes || session.owned[i].empty())
                session.owned[i].resize(std::max<size_t>(bytes, 1));
            session.addresses[i] = session.owned[i].data();
            continue;
        }
        if (outputs[i].bytes < bytes)
            throw SmallBuffer("output " + std::to_string(i) + " needs " + std::to_string(bytes) + " bytes, got " +
                              std::to_string(outputs[i].bytes));
        if (reinterpret_cast<uintptr_t>(outputs[i].data) % static_cast<uintptr_t>(bytes_of(y.type)) != 0)
            throw ArgumentError("the data of output " + std::to_string(i) + " is not on a boundary of its elements");
        session.addresses[i] = outputs[i].data;
    }
}

zp_status load(zp_program** program, const zp_options* options, const std::function<Container()>& read) {
    return guarded([&] {
        need(program, "program");
        const int64_t limit = limit_of(options);
        auto made = std::make_unique<zp_program>();
        made->shared = Program::of_stranger(read(), limit);
        *program = made.release();
    });
}

}  // namespace

int32_t zp_abi_version(void) { return ZP_ABI_VERSION; }

const char* zp_version(void) { return ZEROPOINT_VERSION; }

const char* zp_last_error(void) { return t_error.c_str(); }

const char* zp_isa(void) {
    const char* name = "";
    guarded([&] { name = isa_name(active_isa()); });
    return name;
}

int32_t zp_num_threads(void) {
    int32_t threads = 0;
    guarded([&] { threads = num_threads(); });
    return threads;
}

zp_status zp_set_num_threads(int32_t threads) {
    return guarded([&] { set_num_threads(threads); });
}

zp_status zp_program_load(const char* path, const zp_options* options, zp_program** program) {
    return load(program, options, [&] {
        need(path, "path");
        return Container::read(path, tensors_in_place);
    });
}

zp_status zp_program_load_memory(const void* data, size_t bytes, const zp_options* options, zp_program** program) {
    return load(program, options, [&] {
        need(data, "data");
        return Container(std::string_view(static_cast<const char*>(data), bytes));
    });
}

void zp_program_free(zp_program* program) { delete program; }

size_t zp_program_input_count(const zp_program* program) {
    return program == nullptr ? 0 : program->shared->inputs().size();
}

size_t zp_program_output_count(const zp_program* program) {
    return program == nullptr ? 0 : program->shared->outputs();
}

size_t zp_program_step_count(const zp_program* program) {
    return program == nullptr ? 0 : program->shared->notes().size();
}

const char* zp_program_result(const zp_program* program) {
    return program == nullptr ? "" : program->shared->result().c_str();
}

zp_status zp_program_input(const zp_program* program, size_t index, zp_input* input) {
    return guarded([&] {
        need(program, "program");
        need(input, "input");
        const std::vector<ProgramInput>& inputs = program->shared->inputs();
        if (index >= inputs.size())
            throw ArgumentError("the program has " + std::to_string(inputs.size()) + " inputs, there is no input " +
                                std::to_string(index));
        const ProgramInput& found = inputs[index];
        zp_input described = {};
        described.name = found.name.c_str();
        described.type = static_cast<int32_t>(found.type);
        described.rank = static_cast<int32_t>(found.sizes.size());
        for (size_t i = 0; i < found.sizes.size(); ++i) {
            const bool is_free = found.sizes[i] < 0;
            described.sizes[i] = is_free ? -1 : found.sizes[i];
            described.example[i] = found.example[i];
            described.axes[i] = is_free ? found.axes[i].c_str() : nullptr;
        }
        *input = described;
    });
}

zp_status zp_session_create(zp_program* program, zp_session** session) {
    return guarded([&] {
        need(program, "program");
        need(session, "session");
        *session = new zp_session(program->shared);
    });
}

void zp_session_free(zp_session* session) { delete session; }

zp_status zp_session_reset(zp_session* session) {
    return guarded([&] {
        need(session, "session");
        const Running running(*session);
        session->state.reset();
    });
}

zp_status zp_session_describe_outputs(zp_session* session, const zp_tensor* inputs, size_t input_count,
                                      zp_tensor* outputs, size_t output_count) {
    return guarded([&] {
        need(session, "session");
        const Running running(*session);
        check_output_count(*session, outputs, output_count);
        read_inputs(*session, inputs, input_count, false);
        const auto plan = session->program->plan(session->inputs.layouts);
        for (size_t i = 0; i < output_count; ++i) describe(plan->outputs[i], outputs[i]);
    });
}

zp_status zp_session_run(zp_session* session, const zp_tensor* inputs, size_t input_count, zp_tensor* outputs,
                         size_t output_count) {
    return guarded([&] {
        need(session, "session");
        const Running running(*session);
        check_output_count(*session, outputs, output_count);
        read_inputs(*session, inputs, input_count, true);
        const auto plan = session->program->plan(session->inputs.layouts);
        copy_inputs(*session, inputs);
        try {
            place_outputs(*session, *plan, outputs);
        } catch (const SmallBuffer&) {
            for (size_t i = 0; i < output_count; ++i) describe(plan->outputs[i], outputs[i]);
            throw;
        }
        session->program->run(*plan, session->inputs.addresses.data(), session->addresses.data(), session->state);
        for (size_t i = 0; i < output_count; ++i) {
            describe(plan->outputs[i], outputs[i]);
            outputs[i].data = session->addresses[i];
        }
    });
}

zp_status zp_session_profile(zp_session* session, const zp_tensor* inputs, size_t input_count, zp_step* steps,
                             size_t* count) {
    return guarded([&] {
        need(session, "session");
        need(count, "count");
        if (*count > 0) need(steps, "steps");
        const Running running(*session);
        read_inputs(*session, inputs, input_count, true);
        const auto plan = session->program->plan(session->inputs.layouts);
        copy_inputs(*session, inputs);
        place_outputs(*session, *plan, nullptr);
        State state(session->program->state());
        std::vector<double> seconds(plan->instructions.size());
        session->program->run(*plan, session->inputs.addresses.data(), session->addresses.data(), state,
                              seconds.data());
        for (size_t i = 0; i < std::min(*count, seconds.size()); ++i) {
            const Instruction& instruction = plan->instructions[i];
            zp_step step = {"copy", "", seconds[i], instruction.macs, ""};
            if (instruction.step >= 0) {
                const auto at = static_cast<size_t>(instruction.step);
                const StepNote& note = session->program->notes()[at];
                step.op = note.op.c_str();
                step.name = note.name.c_str();
                if (plan->shown[at].kernel != nullptr) step.kernel = plan->shown[at].kernel;
            }
            steps[i] = step;
        }
        *count = seconds.size();
    });
}
