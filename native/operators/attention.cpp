#include "operators/attention.h"

#include "cpu/machine.h"
#include "cpu/threads.h"
#include "kernels/registry.h"
#include "operators/scratch.h"

#include <algorithm>

namespace zeropoint {

void attention(const AttentionArgs& a) {
    const int64_t worth = worth_macs(AttentionArgs::kBlock);
    const AttentionFn kernel = kernels().attention;
    const int64_t macs = std::min(a.rows, AttentionArgs::kBlock) * a.columns * (a.depth + a.width);
    struct Memory {};
    parallel_for(a.items(), std::max<int64_t>(1, worth / std::max<int64_t>(1, macs)), [&](int64_t begin, int64_t end) {
        kernel(a, begin, end, scratch_of<Memory>(static_cast<size_t>(a.memory())));
    });
}

}  // namespace zeropoint
