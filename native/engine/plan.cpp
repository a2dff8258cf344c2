#include "engine/plan.h"

#include "cpu/threads.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>

namespace zeropoint {
namespace {

constexpr int64_t kAlignment = 64;

int64_t rounded(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Buffers that share one stretch of memory, one taking over from the other.
struct Block {
    int64_t bytes = 0, offset = 0;
    int32_t first = 0, last = 0;
};

// Gives these buffers their offsets in one stretch of memory, and returns its size.
int64_t place(std::vector<Buffer>& buffers, const std::vector<size_t>& which) {
    std::vector<Block> blocks;
    std::vector<int32_t> block_of(buffers.size(), -1);
    for (const size_t i : which) {
        const Buffer& b = buffers[i];
        if (b.over >= 0) {
            const Buffer& from = buffers[static_cast<size_t>(b.over)];
            const int32_t shared = block_of[static_cast<size_t>(b.over)];
            if (shared >= 0 && from.last == b.first && from.bytes >= b.bytes) {
                block_of[i] = shared;
                blocks[static_cast<size_t>(shared)].last = b.last;
                continue;
            }
        }
        block_of[i] = static_cast<int32_t>(blocks.size());
        blocks.push_back({rounded(b.bytes), 0, b.first, b.last});
    }
    // Largest first, each as low as it fits beside those that are in use at the same time.
    std::vector<size_t> order(blocks.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return blocks[a].bytes > blocks[b].bytes; });
    std::vector<size_t> placed;  // by offset
    int64_t all = 0;
    for (const size_t i : order) {
        Block& block = blocks[i];
        int64_t offset = 0;
        for (const size_t other : placed) {
            const Block& o = blocks[other];
            if (o.last < block.first || block.last < o.first) continue;
            if (o.offset >= offset + block.bytes) break;
            offset = std::max(offset, o.offset + o.bytes);
        }
        block.offset = offset;
        const auto later = std::upper_bound(placed.begin(), placed.end(), i,
                                            [&](size_t a, size_t b) { return blocks[a].offset < blocks[b].offset; });
        placed.insert(later, i);
        all = std::max(all, offset + block.bytes);
    }
    for (const size_t i : which) buffers[i].offset = blocks[static_cast<size_t>(block_of[i])].offset;
    return all;
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

void place_buffers(Plan& plan) {
    std::vector<size_t> outside;
    std::vector<std::vector<size_t>> inside(plan.runs.size());
    for (size_t i = 0; i < plan.buffers.size(); ++i) {
        const Buffer& b = plan.buffers[i];
        if (b.kind != BufferKind::arena || b.first < 0) continue;
        plan.value_bytes += rounded(b.run >= 0 ? b.bytes * plan.runs[static_cast<size_t>(b.run)].images : b.bytes);
        if (b.run >= 0)
            inside[static_cast<size_t>(b.run)].push_back(i);
        else
            outside.push_back(i);
    }
    for (size_t i = 0; i < plan.runs.size(); ++i) {
        DepthFirst& run = plan.runs[i];
        run.slot_bytes = place(plan.buffers, inside[i]);
        Buffer slots;
        slots.bytes = run.slot_bytes * run.slots;
        slots.first = run.first;
        slots.last = run.last;
        run.buffer = static_cast<int32_t>(plan.buffers.size());
        outside.push_back(plan.buffers.size());
        plan.buffers.push_back(slots);
    }
    plan.arena_bytes = place(plan.buffers, outside);
}

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
