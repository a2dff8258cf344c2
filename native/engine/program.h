// A quantized model as a list of steps, read from a file and checked. See docs/engine.md for the format.
//
// Threads may share a program, but not a state. Each run takes memory from a pool, so that nothing is allocated once as
// many runs as there are at the same time have been made for inputs of these sizes. A forked process may go on with the
// programs of its parent, whatever the other threads of that were doing with them.
#pragma once

#include "cpu/isa.h"
#include "engine/container.h"
#include "engine/json.h"
#include "engine/plan.h"
#include "engine/state.h"
#include "engine/step_table.h"

#include <atomic>
#include <map>
#include <memory>

namespace zeropoint {

// The most memory for the values of one run, unless the caller says otherwise.
constexpr int64_t kDefaultMemoryLimit = int64_t{8} << 30;

struct ProgramInput {
    std::string name;
    ElementType type = ElementType::f32;
    // For each axis a size; -1 is free, -2 - k is the k-th name: sizes of one name are equal.
    Sizes sizes;
    std::vector<std::string> axes;  // as the file has them
    Sizes example;
};

// The sizes of an input, and how it lies in memory: contiguous, or channels last.
struct InputLayout {
    Sizes sizes;
    bool channels_last = false;
    bool operator==(const InputLayout& o) const { return channels_last == o.channels_last && sizes == o.sizes; }
};

struct StepNote {
    std::string op, name;  // name: of its first output
};

// The most that the weights of a file may take when they are packed: 60 MB and 16 bytes for each byte of the file, or
// what the caller allows for a run, if that is more than the default. With the file itself and its JSON, at most 46
// bytes for each of its bytes, loading stays below 64 MB and 64 bytes for each byte of the file.
int64_t packed_limit(int64_t file_bytes, int64_t memory_limit);

// The stored tensors of a program that its steps read where they are, and whose bytes may be any: packed weights.
std::vector<std::string> tensors_in_place(const std::map<std::string, std::string>& metadata);

class Program {
public:
    // Throws FormatError if the file is not in order, and says what and where.
    explicit Program(Container container, int64_t memory_limit = kDefaultMemoryLimit,
                     std::vector<std::shared_ptr<Foreign>> foreign = {});
    // The same for a file that may come from anywhere: its packed weights take no more than it is worth.
    static std::unique_ptr<Program> of_stranger(Container container, int64_t memory_limit = kDefaultMemoryLimit);
    ~Program();

    const std::vector<ProgramInput>& inputs() const { return inputs_; }
    // The structure of the results, as JSON; empty if there is one.
    const std::string& result() const { return result_; }
    // The structure of a call, as JSON: a tuple of the tuple of what comes in order and the dictionary of what has
    // names; empty if it is the inputs one by one.
    const std::string& arguments() const { return arguments_; }
    size_t outputs() const { return outputs_.size(); }
    // The names of the values that are the outputs.
    std::vector<std::string> output_names() const;
    int64_t memory_limit() const { return limit_; }
    int64_t file_bytes() const { return container_.bytes(); }
    // The file. Throws FormatError if it is to be read again, and has been changed.
    std::string data();
    const std::vector<StepNote>& notes() const { return notes_; }
    // What is kept from run to run; a new State of these begins with the initial values.
    const std::vector<StateTensor>& state() const { return state_; }

    // What is to be done for such inputs; kept for the next time. Throws PlanError if they do not fit.
    std::shared_ptr<const Plan> plan(const std::vector<InputLayout>& layouts);
    // `inputs` lie as the plan was told, `outputs` have the sizes and strides of plan.outputs. Throws
    // std::runtime_error if another run has the state.
    void run(const Plan& plan, const void* const* inputs, void* const* outputs, State& state,
             double* seconds = nullptr);

private:
    struct Prepared;
    struct Memory;
    struct Shared;

    Shared& shared();
    void parse();
    void parse_state(const std::function<void(const std::string&, const StoredTensor*)>& define);
    void find_packed(const Prepared& made);
    std::shared_ptr<const Prepared> make_steps(bool first);
    Plan make_plan(const std::shared_ptr<const Prepared>& made, const std::vector<InputLayout>& layouts) const;
    void check_fit(const std::vector<InputLayout>& layouts) const;

    Container container_;
    int64_t limit_;
    std::vector<std::shared_ptr<Foreign>> foreign_;
    Json json_;
    std::vector<ProgramInput> inputs_;
    std::vector<int32_t> outputs_;
    std::string result_, arguments_;
    int64_t version_ = 0;
    std::vector<StateTensor> state_;
    std::vector<StepNote> notes_;
    std::map<std::string, int32_t> values_;       // not a hash, which a file could make slow
    std::vector<const StoredTensor*> constants_;  // by value; null for others
    std::vector<const StoredTensor*> packed_;     // constants that are read only when steps are prepared

    std::shared_ptr<const Prepared> first_;  // what the program was made with
    std::atomic<Shared*> shared_{nullptr};
};

}  // namespace zeropoint
