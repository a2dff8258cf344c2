// Depth first: some instructions that compute each image of a batch by itself are executed for one image after the
// other, not each for the whole batch. What they hand on then stays in the L2 cache of the core that made it, and
// threads take whole images instead of meeting after every instruction. The bytes are the same.
//
// What lies inside of such a run has memory for one image in each thread. What comes from outside, or goes there, is as
// large as before.
#pragma once

#include "engine/plan.h"

namespace zeropoint {

// A core, as the choice sees it.
struct DepthFirstCosts {
    int threads = 1;
    int64_t l2_bytes = 0;
};

// Finds the runs of a plan whose buffers have no places yet. An instruction gains the bytes of an image that it reads
// and writes, if those of the batch leave the L2 cache of a core between instructions; it loses what it reads again of
// its weights for every image, and the time of a call.
void find_runs(Plan& plan, const DepthFirstCosts& costs);

}  // namespace zeropoint
