#include "engine/plan.h"

#include "cpu/threads.h"

#include <atomic>
#include <chrono>

namespace zeropoint {
namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

void Plan::run(const void* const* inputs, void* const* given_outputs, void* const* state, uint8_t* arena, void** bases,
               double* seconds) const {
    for (size_t i = 0; i < buffers.size(); ++i) {
        const Buffer& b = buffers[i];
        switch (b.kind) {
            case BufferKind::arena: bases[i] = arena + b.offset; break;
            case BufferKind::constant: bases[i] = const_cast<void*>(b.constant); break;
            case BufferKind::input: bases[i] = const_cast<void*>(inputs[b.index]); break;
            case BufferKind::output: bases[i] = given_outputs[b.index]; break;
            case BufferKind::state: bases[i] = state[b.index]; break;
        }
    }
    for (size_t i = 0; i < buffers.size(); ++i)
        if (buffers[i].run >= 0)
            bases[i] =
                static_cast<uint8_t*>(bases[runs[static_cast<size_t>(buffers[i].run)].buffer]) + buffers[i].offset;
    size_t next = 0, i = 0;
    try {
        for (; i < instructions.size(); ++i) {
            if (next < runs.size() && runs[next].first == static_cast<int32_t>(i)) {
                run_depth_first(next, bases, seconds == nullptr ? nullptr : seconds + i);
                i = static_cast<size_t>(runs[next++].last);
                continue;
            }
            const Instruction& instruction = instructions[i];
            void* const* at = addresses(instruction.places, bases);
            const auto begin =
                seconds == nullptr ? std::chrono::steady_clock::time_point() : std::chrono::steady_clock::now();
            instruction.run(at);
            if (seconds != nullptr) seconds[i] = seconds_since(begin);
        }
    } catch (...) {
        undo(i, bases);
        throw;
    }
}

// The addresses of places, behind those of the buffers.
void* const* Plan::addresses(const std::vector<Place>& places, void** bases) const {
    void** const at = bases + buffers.size();
    for (size_t p = 0; p < places.size(); ++p)
        at[p] = static_cast<uint8_t*>(bases[places[p].buffer]) + places[p].offset;
    return at;
}

void Plan::undo(size_t failed, void** bases) const {
    for (size_t u = undos.size(); u-- > 0;)
        if (undos[u].instruction < static_cast<int32_t>(failed)) undos[u].work(addresses(undos[u].places, bases));
}

// Every thread takes one image after the other through all instructions. Their seconds are the mean of the threads'.
void Plan::run_depth_first(size_t number, void** bases, double* seconds) const {
    const DepthFirst& run = runs[number];
    const size_t count = static_cast<size_t>(run.last - run.first + 1);
    std::vector<double> times(seconds == nullptr ? 0 : count * static_cast<size_t>(run.slots), 0.0);
    std::atomic<int64_t> next{0};
    parallel_for(run.slots, 1, [&](int64_t begin, int64_t end) {
        for (int64_t slot = begin; slot < end; ++slot) {
            void** const at = bases + buffers.size() + static_cast<size_t>(slot) * run.places;
            for (int64_t image = next++; image < run.images; image = next++)
                for (size_t i = 0; i < count; ++i) {
                    const Instruction& instruction = instructions[static_cast<size_t>(run.first) + i];
                    for (size_t p = 0; p < instruction.places.size(); ++p) {
                        const Place& place = instruction.places[p];
                        const bool inside = buffers[static_cast<size_t>(place.buffer)].run >= 0;
                        const int64_t offset =
                            inside ? slot * run.slot_bytes : place.offset + image * instruction.per_image.strides[p];
                        at[p] = static_cast<uint8_t*>(bases[place.buffer]) + offset;
                    }
                    if (times.empty()) {
                        instruction.per_image.work(at, 1);
                        continue;
                    }
                    const auto start = std::chrono::steady_clock::now();
                    instruction.per_image.work(at, 1);
                    times[static_cast<size_t>(slot) * count + i] += seconds_since(start);
                }
        }
    });
    for (size_t i = 0; i < count && seconds != nullptr; ++i) {
        seconds[i] = 0;
        for (int slot = 0; slot < run.slots; ++slot)
            seconds[i] += times[static_cast<size_t>(slot) * count + i] / run.slots;
    }
}

}  // namespace zeropoint
