#include "engine/plan.h"

#include <algorithm>
#include <chrono>
#include <numeric>

namespace zeropoint {
namespace {

constexpr int64_t kLine = 64;

int64_t rounded(int64_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

// Buffers that share one stretch of memory, one taking over from the other.
struct Block {
    int64_t bytes = 0, offset = 0;
    int32_t first = 0, last = 0;
};

}  // namespace

void place_buffers(Plan& plan) {
    std::vector<Block> blocks;
    std::vector<int32_t> block_of(plan.buffers.size(), -1);
    for (size_t i = 0; i < plan.buffers.size(); ++i) {
        const Buffer& b = plan.buffers[i];
        if (b.kind != BufferKind::arena || b.first < 0) continue;
        plan.value_bytes += rounded(b.bytes);
        if (b.over >= 0) {
            const Buffer& from = plan.buffers[static_cast<size_t>(b.over)];
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
        plan.arena_bytes = std::max(plan.arena_bytes, offset + block.bytes);
    }
    for (size_t i = 0; i < plan.buffers.size(); ++i)
        if (block_of[i] >= 0) plan.buffers[i].offset = blocks[static_cast<size_t>(block_of[i])].offset;
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
    void** const at = bases + buffers.size();
    using Clock = std::chrono::steady_clock;
    for (const Instruction& instruction : instructions) {
        for (size_t p = 0; p < instruction.places.size(); ++p)
            at[p] = static_cast<uint8_t*>(bases[instruction.places[p].buffer]) + instruction.places[p].offset;
        if (seconds == nullptr) {
            instruction.work(at);
        } else {
            const Clock::time_point begin = Clock::now();
            instruction.work(at);
            *seconds++ = std::chrono::duration<double>(Clock::now() - begin).count();
        }
    }
}

}  // namespace zeropoint
