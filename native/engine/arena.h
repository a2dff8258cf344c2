// Where the values of a program lie: one stretch of memory, in which values that are not needed at the same time share
// places.
#pragma once

#include "engine/plan.h"

namespace zeropoint {

// Gives every arena buffer its offset: two that are in use at the same time never share memory.
void place_buffers(Plan& plan);

}  // namespace zeropoint
