// What a program keeps from one call to the next: tensors that each run reads and replaces, as the keys and values of a
// decoder. A state belongs to whoever made it; a program may have any number of them.
#pragma once

#include "cpu/memory.h"
#include "engine/container.h"

#include <atomic>
#include <string>
#include <string_view>
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
    // With the initial values. The list must outlive it. The first use takes the memory: a file may claim any size.
    explicit State(const std::vector<StateTensor>& tensors);
    ~State() { delete kept_.load(); }
    State(const State&) = delete;
    State& operator=(const State&) = delete;

    // Back to the initial values. Throws std::runtime_error while a run has it.
    void reset();
    // The bytes of each tensor, and such bytes put in their places. Throw std::runtime_error while a run has it, the
    // second also std::invalid_argument for another number of tensors or of bytes; then nothing is changed.
    std::vector<std::string> values();
    void set_values(const std::vector<std::string_view>& values);
    // Some bytes of a tensor, from an offset on, and such bytes put there. Throw as above, and std::invalid_argument
    // for bytes outside the tensor.
    std::string part(size_t tensor, int64_t offset, int64_t bytes);
    void set_part(size_t tensor, int64_t offset, std::string_view bytes);
    // For who uses it.
    void* const* addresses() const;

    // Held by a run: two at a time would each spoil what the other keeps.
    class Use {
    public:
        // Throws std::runtime_error if another run has it, std::bad_alloc if there is no memory for it.
        explicit Use(State& state);
        ~Use() { state_.user_ = 0; }
        Use(const Use&) = delete;
        Use& operator=(const Use&) = delete;

    private:
        State& state_;
    };

private:
    struct Kept {
        std::vector<AlignedBytes> memory;
        std::vector<ZeroPages> zeros;  // of large tensors that begin with zeros: a cache takes memory as it fills
        std::vector<void*> addresses;
    };
    void require_inside(size_t tensor, int64_t offset, int64_t bytes) const;
    void take_memory();
    static bool is_pages(const StateTensor& tensor);
    void fill(Kept& kept) const;

    const std::vector<StateTensor>& tensors_;
    std::atomic<Kept*> kept_{nullptr};  // whole or not there, for a process that is forked meanwhile
    std::atomic<int> user_{0};          // the process that runs it, counted in forks from 1; 0 is none
};

}  // namespace zeropoint
