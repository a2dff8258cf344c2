// What a program keeps from one call to the next: tensors that each run reads and replaces, as the keys and values of a
// decoder. A state belongs to whoever made it; a program may have any number of them.
#pragma once

#include "cpu/memory.h"
#include "engine/container.h"

#include <atomic>
#include <string>
#include <vector>

namespace zeropoint {

// A tensor of the state, as the file has it.
struct StateTensor {
    std::string name, next_name;
    ElementType type = ElementType::f32;
    Sizes sizes;
    const StoredTensor* initial = nullptr;  // null: zeros
    int32_t value = -1, next = -1;          // the value that steps read, and the one that replaces it after a run

    int64_t bytes() const { return count_of(sizes) * bytes_of(type); }
};

class State {
public:
    // With the initial values. The list must outlive it.
    explicit State(const std::vector<StateTensor>& tensors);
    State(const State&) = delete;
    State& operator=(const State&) = delete;

    // Back to the initial values. Throws std::runtime_error while a run has it.
    void reset();
    void* const* addresses() const { return addresses_.data(); }

    // Held by a run: two at a time would each spoil what the other keeps.
    class Use {
    public:
        explicit Use(State& state);
        ~Use() { state_.user_ = 0; }
        Use(const Use&) = delete;
        Use& operator=(const Use&) = delete;

    private:
        State& state_;
    };

private:
    void fill();

    const std::vector<StateTensor>& tensors_;
    std::vector<AlignedBytes> memory_;
    std::vector<void*> addresses_;
    std::atomic<int> user_{0};  // the process that runs it, counted in forks from 1; 0 is none
};

// How many forks lie between the first process with this library and this one. What a thread of the parent was doing
// is not going on in the child.
int count_of_forks();

}  // namespace zeropoint
