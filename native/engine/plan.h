// What a program does for inputs of certain sizes: instructions over buffers whose places in one arena are fixed.
#pragma once

#include "engine/tensor.h"

#include <functional>
#include <memory>

namespace zeropoint {

// Gets the addresses of its places, in their order.
using Work = std::function<void(void* const* at)>;

// The same for some images of a batch. Gets the addresses of the first of them.
using ImagesWork = std::function<void(void* const* at, int64_t images)>;

// An instruction that computes each image of a batch by itself.
struct PerImage {
    int64_t images = 0;            // of the batch; 0 if the instruction takes it as a whole
    std::vector<int64_t> strides;  // of its places: bytes from image to image
    int64_t weights = 0;           // bytes that it reads again for every image
    ImagesWork work;
};

struct Instruction {
    std::vector<Place> places;
    Work work;          // if it takes a batch as a whole
    int32_t step = -1;  // of the program; -1 is a copy at its end
    double macs = 0;
    PerImage per_image;

    void run(void* const* at) const {
        if (per_image.images > 0)
            per_image.work(at, per_image.images);
        else
            work(at);
    }
};

// Puts back what an instruction was about to overwrite in the state, if the run fails behind it.
struct Undo {
    int32_t instruction = -1;  // that kept it
    std::vector<Place> places;
    Work work;
};

enum class BufferKind { arena, constant, input, output, state };

struct Buffer {
    BufferKind kind = BufferKind::arena;
    int64_t bytes = 0;
    int64_t offset = 0;              // of an arena buffer
    const void* constant = nullptr;  // of a constant
    int32_t index = -1;              // of an input, output or tensor of the state
    int32_t first = -1, last = -1;   // instructions that use it
    int32_t over = -1;               // a buffer whose memory it may take over, element by element
    bool updates = false;            // it begins as a copy of that buffer
    int32_t run = -1;                // that it is inside of: then its offset is that in a slot, for one image
};

// Instructions that are executed depth first: see engine/depth_first.h.
struct DepthFirst {
    int32_t first = 0, last = 0;  // instructions
    int64_t images = 0;
    int slots = 1;           // threads that take images through it, each with memory of its own
    int64_t slot_bytes = 0;  // of which
    int32_t buffer = -1;     // that has all slots
    size_t places = 0;       // the most of an instruction
};

// What a step does for inputs of these sizes, for people who read profiles.
struct Shown {
    const char* kernel = nullptr;  // its heaviest one, by its name in the registry; null if it has none
    ElementType from = ElementType::f32, to = ElementType::f32;  // of its first input and output
    Sizes sizes;                                                 // of its first output
    // Bytes: of the inputs that are stored in the file, of the others, and of the outputs.
    int64_t stored = 0, read = 0, written = 0;
};

struct Plan {
    std::vector<Instruction> instructions;
    std::vector<Undo> undos;  // in the order of their instructions
    std::vector<Buffer> buffers;
    std::vector<Tensor> outputs;
    std::vector<Shown> shown;      // by step
    std::vector<DepthFirst> runs;  // in their order
    int threads = 1;               // that the runs are for
    int64_t arena_bytes = 0;
    int64_t value_bytes = 0;  // what the arena would be if nothing shared memory
    size_t most_places = 0;
    std::shared_ptr<const void> steps;  // which the instructions refer to

    // `bases` has room for all buffers and then `most_places` addresses: of an instruction, or of those that the
    // threads of a run execute at once. `seconds`, if given, gets a number for each instruction. If it throws, the
    // state is what it was before.
    void run(const void* const* inputs, void* const* given_outputs, void* const* state, uint8_t* arena, void** bases,
             double* seconds = nullptr) const;

private:
    void* const* addresses(const std::vector<Place>& places, void** bases) const;
    void undo(size_t failed, void** bases) const;
    void run_depth_first(size_t run, void** bases, double* seconds) const;
};

}  // namespace zeropoint
