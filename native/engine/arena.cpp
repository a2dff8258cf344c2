#include "engine/arena.h"

#include <algorithm>
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

}  // namespace zeropoint
