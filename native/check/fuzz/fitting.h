// Changes that leave a program file in order, or nearly: what the first checks refuse never reaches a planner.
#pragma once

#include "check/fuzz/mutate.h"

namespace zeropoint::check {

// One of: a size that becomes another wherever it stands, a weight that grows or shrinks with its bytes, a step left
// out, repeated or moved, a number that becomes one nearby.
void change_in_order(FileParts& parts, Random& random);

// Both programs in one file; the first input of b may be a result of a.
FileParts joined(FileParts a, FileParts b, Random& random);

}  // namespace zeropoint::check
